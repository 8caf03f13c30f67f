"""The page about VIP and Proxy (docs/ipmode-picture.md) shows what is measured here, in both modes of kube-proxy."""

import ipaddress
from collections.abc import Iterator

import pytest

from tests.packets import facts
from tests.packets.clients import IN_VAIN, PATIENCE, UnservedError, ask
from tests.packets.facts import Row, Sight
from tests.packets.lab import Lab, Served
from tests.packets.rows import INSIDE, OUTSIDE, ROWS
from tests.packets.topology import CLOUDS, NODES, PODS, lan_addresses, pod_addresses

KINDS = {OUTSIDE: "outside", INSIDE[0]: "node", INSIDE[1]: "pod"}
COMMITTED = {(row.cloud, row.ip_mode): row for row in facts.read(facts.COMMITTED)}


@pytest.mark.parametrize(("cloud", "ip_mode"), ROWS, ids=[f"{cloud}-publishes-{ip_mode}" for cloud, ip_mode in ROWS])
async def test_the_page_shows_what_is_measured(lab: Lab, cloud: str, ip_mode: str) -> None:
    header = "v1" if cloud == "balancer" else "none"
    # Local, because else kube-proxy hides from the server who connected to the node.
    async with lab.service(ip_mode, cloud=cloud, proxy_protocol=header, externalTrafficPolicy="Local") as served:
        row = await measured(served, ip_mode)
    facts.write(facts.MEASURED, facts.merged(facts.read(facts.MEASURED), row))
    assert row.essence() == COMMITTED[cloud, ip_mode].essence(), "if that is right: python -m tests.packets.picture"


async def measured(served: Served, ip_mode: str) -> Row:
    address = await served.address()
    hopeless = (served.cloud, ip_mode) == ("router", "Proxy")
    sights = [await sight(served, client, address, IN_VAIN if hopeless else PATIENCE) for client in KINDS]
    rules = len((await served.lab.naming(address))[address])
    return Row(served.cloud, ip_mode, served.cloud == "balancer", sights, {served.lab.mode: rules})


async def sight(served: Served, client: str, address: str, patience: float) -> Sight:
    """One request. The load balancer has counted it by the time that it is answered."""
    before = await served.flows(address, "TCP")
    try:
        answer = await ask(served.lab.hosts[client], address, 80, patience=patience)
    except UnservedError:
        answer = None
    after = await served.flows(address, "TCP")
    peer = OWNERS[answer.peer] if answer else None
    header = OWNERS[answer.header.split()[2]] if answer and answer.header else None
    return Sight(KINDS[client], answer is not None, after > before, peer, header, (before, after))


def owners() -> Iterator[tuple[str, str]]:
    """Each IPv4 address of the lab, and what its host is called on the page."""
    yield lan_addresses(OUTSIDE)[0], "client"
    for cloud in CLOUDS:
        yield lan_addresses(cloud)[0], "load balancer"
    for node in NODES:
        yield lan_addresses(node)[0], "node"
    for pod in PODS:
        address = pod_addresses(pod)[0]
        yield address, "pod"
        yield str(ipaddress.ip_address(address) - 1), "node"  # what it has on the pod's side


OWNERS = dict(owners())
