"""kube-proxy in mode ipvs puts a published address on every node, unless its ipMode is Proxy."""

import pytest

from tests.harness import objects
from tests.ipvs.site import Sight, Site, sight
from tests.packets.lab import Served
from tests.packets.rows import other

pytestmark = pytest.mark.timeout(240)  # everything in the guest is emulated
EVERYBODY = frozenset({"client", "node", "pod"})


def the_node_owns_the_address(seen: Sight) -> None:
    """VIP: on the node, so the load balancer gets neither requests from inside nor answers to its own probes."""
    assert seen.bound, "the address is not on kube-ipvs0"
    assert seen.answered == EVERYBODY
    assert seen.passed == {"client"}
    assert not seen.probe_answered, "a probe from the load balancer's own address was answered"


def the_load_balancer_owns_the_address(seen: Sight) -> None:
    """Proxy: nowhere on the node, so all pass the load balancer, and its probes are answered."""
    assert not seen.bound, "the address is on kube-ipvs0"
    assert seen.answered == EVERYBODY
    assert seen.passed == EVERYBODY
    assert seen.probe_answered, "no answer to a probe from the load balancer's own address"


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
