"""externalTrafficPolicy, source ranges and affinity: where they are enforced, and what a pod then sees."""

import asyncio

import pytest

from tests.packets.clients import ask, http, unserved
from tests.packets.cluster import FAMILIES, SETTLE
from tests.packets.lab import Lab, Served, healthy
from tests.packets.rows import INSIDE, OUTSIDE
from tests.packets.topology import NODES, lan_addresses, second_client_addresses

# The rows in which clients outside are served.
SERVING = (("balancer", "VIP"), ("balancer", "Proxy"), ("router", "VIP"))
serving = pytest.mark.parametrize(("cloud", "ip_mode"), SERVING, ids=["-publishes-".join(row) for row in SERVING])
families = pytest.mark.parametrize("family", FAMILIES)


async def pods_reached(served: Served, count: int = 8) -> set[str]:
    address = await served.address()
    return {(await ask(served.lab.hosts[OUTSIDE], address, 80)).pod for _ in range(count)}


@serving
@families
async def test_policy_local_sends_traffic_to_nodes_with_a_pod_alone_and_follows_the_pod(
    lab: Lab, cloud: str, ip_mode: str, family: str
) -> None:
    async with lab.service(
        ip_mode, cloud=cloud, families=(family,), pods=("server1",), externalTrafficPolicy="Local"
    ) as served:
        port = (await served.get())["spec"]["healthCheckNodePort"]
        for node, status in (("node1", 200), ("node2", 503)):
            # kube-proxy listens in the Service's own family alone.
            found = await http(lab.hosts[OUTSIDE], lan_addresses(node)[FAMILIES.index(family)], port, "/healthz")
            assert found[0] == status, f"{node}: {found}"
        balancer = await served.wait_balancer(lambda one: healthy(one) == {"node1": True, "node2": False})
        assert (balancer["healthCheck"]["protocol"], balancer["healthCheck"]["port"]) == ("http", port)
        assert await pods_reached(served) == {"server1"}
        answer = await ask(lab.hosts[OUTSIDE], await served.address(), 80)
        connects = {"balancer": "balancer", "router": OUTSIDE}[cloud]
        assert answer.peer in lan_addresses(connects), "Local keeps the address of who connects to the node"

        await served.move("server2")
        await served.wait_balancer(lambda one: healthy(one) == {"node1": False, "node2": True})
        assert await pods_reached(served) == {"server2"}


@serving
@families
async def test_policy_cluster_uses_every_node_and_hides_who_connected(
    lab: Lab, cloud: str, ip_mode: str, family: str
) -> None:
    async with lab.service(
        ip_mode, cloud=cloud, families=(family,), pods=("server1",), externalTrafficPolicy="Cluster"
    ) as served:
        assert "healthCheckNodePort" not in (await served.get())["spec"]
        await served.wait_balancer(lambda one: healthy(one) == dict.fromkeys(NODES, True))
        address, peers = await served.address(), set[str]()
        async with asyncio.timeout(SETTLE):
            while len(peers) < len(NODES):
                peers.add((await ask(lab.hosts[OUTSIDE], address, 80)).peer)
        assert not peers & {*lan_addresses("balancer"), *lan_addresses(OUTSIDE)}, "one address of each node"


@serving
@families
async def test_source_ranges_are_enforced_at_the_load_balancer(lab: Lab, cloud: str, ip_mode: str, family: str) -> None:
    index = FAMILIES.index(family)
    allowed, refused = lan_addresses(OUTSIDE)[index], second_client_addresses()[index]
    ranges = [f"{allowed}/{32 if family == 'IPv4' else 128}"]
    async with lab.service(ip_mode, cloud=cloud, families=(family,), loadBalancerSourceRanges=ranges) as served:
        address = await served.address()
        assert (await ask(lab.hosts[OUTSIDE], address, 80, source=allowed)).pod in lab.pods
        # Clients inside the cluster are shut out as well, in both modes: by kube-proxy or as the node that they arrive from.
        shut_out = await asyncio.gather(
            unserved(lab.hosts[OUTSIDE], address, 80, source=refused),
            *(unserved(lab.hosts[client], address, 80) for client in INSIDE),
        )
        assert all(shut_out)
        if ip_mode == "Proxy":
            await served.wait_warning("clients inside the cluster arrive at the load balancer with a node's address")
        rules = (await lab.naming(ranges[0].partition("/")[0]))[ranges[0].partition("/")[0]]
        assert bool(rules) is (ip_mode == "VIP"), f"kube-proxy's rules for the ranges: {rules}"


async def test_with_proxy_a_pod_arrives_as_its_node_so_the_nodes_in_the_ranges_let_it_in(lab: Lab) -> None:
    ranges = [f"{lan_addresses(node)[0]}/32" for node in NODES]
    async with lab.service("Proxy", proxy_protocol="v1", loadBalancerSourceRanges=ranges) as served:
        address = await served.address()
        for client in INSIDE:
            answer = await ask(lab.hosts[client], address, 80)
            assert answer.header is not None
            assert answer.header.split()[2] == lan_addresses("node1")[0]
        assert await unserved(lab.hosts[OUTSIDE], address, 80)


@serving
@families
async def test_session_affinity_keeps_each_client_on_its_pod(lab: Lab, cloud: str, ip_mode: str, family: str) -> None:
    async with lab.service(ip_mode, cloud=cloud, families=(family,), sessionAffinity="ClientIP") as served:
        address = await served.address()
        for client in (OUTSIDE, *INSIDE):
            pods = {(await ask(lab.hosts[client], address, 80)).pod for _ in range(8)}
            assert len(pods) == 1, f"{client} was sent to {pods}"
