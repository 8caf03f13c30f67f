"""kube-proxy in mode ipvs puts a published address on every node, unless its ipMode is Proxy."""

import asyncio

import pytest

from tests.harness import objects
from tests.ipvs.site import PATIENCE, TIMEOUT, Sight, Site, sight
from tests.packets.clients import http
from tests.packets.lab import Served
from tests.packets.netns import Namespace
from tests.packets.rows import other
from tests.packets.topology import CLIENT, lan_addresses

pytestmark = pytest.mark.timeout(TIMEOUT)
EVERYBODY = frozenset({"client", "node", "pod"})


def the_node_owns_the_address(seen: Sight) -> None:
    """VIP: on the node, so the load balancer gets neither requests from inside nor answers to its own probes."""
    assert seen.bound, "the address is not on kube-ipvs0"
    assert seen.answered == EVERYBODY
    assert seen.passed == {"client"}
    assert not seen.probe_answered, "a probe from the load balancer's own address was answered"
    assert seen.measured == "short-cut"


def the_load_balancer_owns_the_address(seen: Sight) -> None:
    """Proxy: nowhere on the node, so all pass the load balancer, and its probes are answered."""
    assert not seen.bound, "the address is on kube-ipvs0"
    assert seen.answered == EVERYBODY
    assert seen.passed == EVERYBODY
    assert seen.probe_answered, "no answer to a probe from the load balancer's own address"
    assert seen.measured == "load balancer"


OWNERS = {"VIP": the_node_owns_the_address, "Proxy": the_load_balancer_owns_the_address}


async def test_switching_live_works_both_ways_and_each_modes_assertion_fails_for_the_other(site: Site) -> None:
    async with site.service("VIP", pods=("server1",)) as served:
        await _owned(served, site, "VIP")
        for ip_mode in ("Proxy", "VIP"):
            await served.switch(ip_mode)
            await _owned(served, site, ip_mode)


async def _owned(served: Served, site: Site, ip_mode: str) -> None:
    seen = await sight(served, site)
    OWNERS[ip_mode](seen)
    with pytest.raises(AssertionError):
        OWNERS[other(ip_mode)](seen)


@pytest.mark.scenario("B13")
async def test_without_an_annotation_proxy_is_published_first_and_the_backends_stay_healthy(site: Site) -> None:
    async with site.service(None, pods=("server1",)) as served:
        assert [one["ipMode"] for one in objects.ingress(await served.get())] == ["Proxy"]
        the_load_balancer_owns_the_address(await sight(served, site))
        balancer = await served.wait_balancer(lambda one: all(each["healthy"] for each in one["status"]["targets"]))
        assert len(balancer["status"]["targets"]) == 1


@pytest.mark.scenario("B83")
async def test_probes_to_the_address_itself_reach_the_health_check_and_no_port_that_is_not_the_services(
    site: Site,
) -> None:
    async with site.service("VIP", pods=("server1",), externalTrafficPolicy="Local") as served:
        address, port = await served.address(), (await served.get())["spec"]["healthCheckNodePort"]
        prober = site.hosts[CLIENT]
        # As a cloud that keeps the destination delivers its probes.
        prober.run("ip", "route", "add", f"{address}/32", "via", lan_addresses("node1")[0])
        try:
            await _answers(prober, address, port, 200)
            # kube-proxy's own health is served on all addresses of the node, but not on this one.
            with pytest.raises(ConnectionRefusedError):
                await http(prober, address, 10256, "/healthz", PATIENCE)
            await served.move("server2")  # on another node
            await _answers(prober, address, port, 503)
        finally:
            prober.run("ip", "route", "del", f"{address}/32")


async def _answers(prober: Namespace, address: str, port: int, status: int) -> None:
    """Until probes are answered so: kube-proxy counts a sync as ended before it tells its health checks of it."""
    seen: object = None
    try:
        async with asyncio.timeout(PATIENCE):
            while seen != status:
                try:
                    seen = (await http(prober, address, port, "/healthz", PATIENCE))[0]
                except OSError as error:
                    seen = error
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"{address} port {port}: {seen!r} in the place of {status}") from None
