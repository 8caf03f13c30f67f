"""
externalTrafficPolicy and affinity, for clients on the node and in its pods: what they get of an address, by where the pods are.

With policy Local, IPVS masquerades nobody. A client in the node's own network then has the load balancer's address, which is on the node,
as its source; a pod on another node answers to that address, and so to its own node.
"""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest

from ccm_lb.dataplane.clients import effect
from ccm_lb.dataplane.clients.effect import Client, Endpoints, Path, Policy, Spec
from ccm_lb.dataplane.model import Confidence, Delivery, Kind, Mode, ServiceProxy
from ccm_lb.dataplane.versions import Version
from ccm_lb.objects import LoadBalancerIngress
from tests.ipvs import interpreter
from tests.ipvs.site import OTHER_NODE, TIMEOUT, Got, Site, got
from tests.packets.lab import Served
from tests.packets.topology import lan_addresses

pytestmark = pytest.mark.timeout(TIMEOUT)

HERE, ELSEWHERE = "server1", "server2"
PROXY = ServiceProxy(Kind.KUBE_PROXY, Confidence.CERTAIN, Mode.IPVS, Version(1, 37, 2))
# What flannel, among others, adds: whoever is no pod and speaks to one is masqueraded.
MASQUERADE = "iptables -t nat {} POSTROUTING ! -s 10.244.0.0/16 -d 10.244.2.0/24 -j MASQUERADE"


@dataclasses.dataclass(frozen=True)
class Cell:
    """A Service, where its only pod is, and who answers the node and the pod on it."""

    ip_mode: str
    policy: str
    pod: str
    affinity: str
    node: str
    caller: str


CELLS = [
    Cell("VIP", "Local", HERE, "None", node=HERE, caller=HERE),
    Cell("VIP", "Local", ELSEWHERE, "None", node="", caller=ELSEWHERE),
    Cell("VIP", "Local", ELSEWHERE, "ClientIP", node="", caller=ELSEWHERE),
    Cell("VIP", "Cluster", ELSEWHERE, "None", node=ELSEWHERE, caller=ELSEWHERE),
]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.policy}-pod-on-{cell.pod}-affinity-{cell.affinity}")
async def test_what_clients_on_the_node_get_is_what_explain_says(cell: Cell, site: Site) -> None:
    async with service(site, cell) as served:
        seen = {client: await got(served, site, client) for client in ("node", "pod")}
        assert {client: one.pod for client, one in seen.items()} == {"node": cell.node, "pod": cell.caller}
        assert not any(one.passed for one in seen.values()), "the load balancer was not bypassed"
        assert {client: path(one) for client, one in seen.items()} == said(cell)
        if not cell.node:
            address, node = await served.address(), lan_addresses("node1")[0]
            measured = await site.machine.do(f"{interpreter.PROBE} {address} 80 {node}")
            assert (
                f"short-cut: {address} is bound to this machine, as IPVS does it, and nobody answers there" in measured
            )


async def test_a_network_plug_in_that_masquerades_what_goes_to_pods_elsewhere_lets_the_answer_find_the_node(
    site: Site,
) -> None:
    cell = Cell("VIP", "Local", ELSEWHERE, "None", node="", caller=ELSEWHERE)
    async with service(site, cell) as served:
        assert (await got(served, site, "node")).pod == ""
        await site.machine.do(MASQUERADE.format("-A"))
        try:
            assert (await got(served, site, "node")).pod == ELSEWHERE
        finally:
            await site.machine.do(MASQUERADE.format("-D"))


async def test_with_proxy_policy_local_leaves_the_way_through_the_load_balancer(site: Site) -> None:
    cell = Cell("Proxy", "Local", HERE, "None", node=HERE, caller=HERE)
    async with service(site, cell) as served:
        await served.wait_balancer(lambda one: all(each["healthy"] for each in one["status"]["targets"]))
        for client in ("node", "pod"):
            seen = await got(served, site, client)
            assert (seen.pod, seen.passed) == (HERE, True), client


@contextlib.asynccontextmanager
async def service(site: Site, cell: Cell) -> AsyncIterator[Served]:
    """The cell's Service; the other node has its address as well, as IPVS would put it there."""
    other = site.hosts[OTHER_NODE]
    async with site.service(
        cell.ip_mode, pods=(cell.pod,), externalTrafficPolicy=cell.policy, sessionAffinity=cell.affinity
    ) as served:
        address = f"{await served.address()}/32"
        if cell.ip_mode == "VIP":
            other.run("ip", "address", "add", address, "dev", "lo")
        try:
            yield served
        finally:
            if cell.ip_mode == "VIP":
                other.run("ip", "address", "del", address, "dev", "lo")


def path(seen: Got) -> Path:
    return Path.BROKEN if not seen.pod else Path.LOAD_BALANCER if seen.passed else Path.SHORT_CUT


def said(cell: Cell) -> dict[str, Path]:
    """What `explain` says of the clients of this cell's node."""
    ingress = LoadBalancerIngress(ip="203.0.113.10", ip_mode=cell.ip_mode)
    where = Endpoints.HERE if cell.pod == HERE else Endpoints.ELSEWHERE
    rows = effect.outcomes(PROXY, ingress, Delivery.NODE_PORT, Spec(Policy(cell.policy), cell.affinity != "None"))
    return {
        str(one.client): one.path for one in rows if one.client is not Client.OUTSIDE and one.endpoints in (None, where)
    }
