"""What a load balancer must not do to traffic that a change does not concern."""

import contextlib

import pytest

from tests.packets.clients import Held, ask
from tests.packets.cluster import NAMESPACE, node
from tests.packets.lab import Lab, Served, healthy
from tests.packets.rows import OUTSIDE
from tests.packets.topology import NODES


@pytest.mark.scenario("B71")
async def test_tcp_and_udp_on_one_port_have_node_ports_of_their_own_and_one_can_go_without_the_other(lab: Lab) -> None:
    async with lab.service("Proxy", protocols=("TCP", "UDP")) as served:
        address = await served.address()
        ports = (await served.get())["spec"]["ports"]
        apart = [{**port, "nodePort": 30053 + number} for number, port in enumerate(ports)]
        await served.patch({"spec": {"ports": apart}})
        await served.wait_balancer(lambda one: _forwards(one) == {"TCP": 30053, "UDP": 30054})
        await lab.settle()
        for protocol in ("TCP", "UDP"):
            assert (await ask(lab.hosts[OUTSIDE], address, 80, protocol)).pod in lab.pods

        generation = (await served.balancer())["generation"]
        await served.patch({"spec": {"ports": apart[::-1]}})
        await served.patch({"spec": {"ports": [apart[1]]}})
        after = await served.wait_balancer(lambda one: _forwards(one) == {"UDP": 30054})
        assert after["generation"] == generation + 1, "another order is no change"
        await lab.settle()
        assert (await ask(lab.hosts[OUTSIDE], address, 80, "UDP")).pod in lab.pods


async def test_a_load_balancer_that_keeps_the_destination_needs_no_node_port(lab: Lab) -> None:
    async with lab.service(None, cloud="router", allocateLoadBalancerNodePorts=False) as served:
        assert [port.get("nodePort") for port in (await served.get())["spec"]["ports"]] == [None]
        assert await served.modes() == {"VIP"}
        await served.wait_balancer(lambda one: all(healthy(one).values()))
        for asking in (OUTSIDE, "caller1", "node2"):
            assert (await ask(lab.hosts[asking], await served.address(), 80)).pod in lab.pods


@pytest.mark.scenario("B34")
async def test_connections_survive_a_node_that_comes_and_goes_and_an_annotation_that_concerns_nobody(lab: Lab) -> None:
    async with lab.service("Proxy") as served, contextlib.AsyncExitStack() as stack:
        address = await served.address()
        held = [await stack.enter_async_context(Held(lab.hosts[OUTSIDE], address, 80)) for _ in range(20)]
        before = [await connection.ask() for connection in held]
        server = {"id": "node3", "name": "node3", "addresses": ["172.30.0.13"]}
        await lab.clouds["balancer"].request("POST", "/v1/servers", server)
        try:
            await lab.kube.create("nodes", node("node3", ["172.30.0.13"]))
            await served.wait_balancer(lambda one: _targets(one) == {*NODES, "node3"})
            assert [await connection.ask() for connection in held] == before
        finally:
            await lab.kube.delete("nodes", "node3")
        await served.wait_balancer(lambda one: _targets(one) == set(NODES))
        await lab.clouds["balancer"].request("DELETE", "/v1/servers/node3")
        await _annotate(served)
        assert [await connection.ask() for connection in held] == before


@pytest.mark.scenario("B65")
async def test_a_service_of_ipv6_alone_gets_an_ipv6_address_alone_and_is_served_there(lab: Lab) -> None:
    async with lab.service("Proxy", families=("IPv6",)) as served:
        (address,) = await served.addresses()
        assert ":" in address
        assert (await ask(lab.hosts[OUTSIDE], address, 80)).pod in lab.pods


@pytest.mark.scenario("B68")
async def test_both_fronts_of_a_dual_stack_service_answer_every_time_whatever_a_node_lists_first(lab: Lab) -> None:
    async with lab.service("Proxy", families=("IPv4", "IPv6")) as served:
        for address in await served.addresses():
            pods = {(await ask(lab.hosts[OUTSIDE], address, 80)).pod for _ in range(50)}
            assert pods == set(lab.pods)


def _forwards(balancer: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    return {one["protocol"]: one["targetPort"] for one in balancer["listeners"]}


def _targets(balancer: dict[str, list[dict[str, object]]]) -> set[object]:
    return {one["server"] for one in balancer["targets"]}


async def _annotate(served: Served) -> None:
    """An annotation that nobody here reads, seen by the controller: its barrier is another Service's whole life."""
    generation = (await served.balancer())["generation"]
    await served.lab.kube.patch(
        "services", served.name, {"metadata": {"annotations": {"example.test/note": "new"}}}, NAMESPACE
    )
    async with served.lab.service("Proxy"):
        assert (await served.balancer())["generation"] == generation
