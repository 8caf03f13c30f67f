"""
What clients see of a Service, by how the cloud delivers and what is published: the four rows, an assertion each.

An assertion looks at a `View` and nothing else, so that a test can put the view of the other mode before it and require it to fail.
"""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from tests.packets.clients import IN_VAIN, PATIENCE, Answer, UnservedError, ask
from tests.packets.lab import Served
from tests.packets.topology import CLIENT, lan_addresses

OUTSIDE: Final = CLIENT
INSIDE: Final = ("node1", "caller1")


@dataclasses.dataclass(frozen=True)
class Seen:
    """One request: its answer, if any, and whether the load balancer counted a flow for it."""

    answer: Answer | None
    passed: bool


@dataclasses.dataclass(frozen=True)
class View:
    """The requests of every client by (address, protocol), and the kube-proxy rules that name the address."""

    seen: Mapping[tuple[str, str], Mapping[str, Seen]]
    rules: Mapping[str, Sequence[str]]

    def of(self, *clients: str) -> list[tuple[str, str, Seen]]:
        """(what it was, protocol, what was seen), for messages and assertions."""
        return [
            (f"{client} to {address} {protocol}", protocol, by[client])
            for (address, protocol), by in self.seen.items()
            for client in clients
        ]


async def view(served: Served) -> View:
    """Ask from outside, from a node and from a pod, over each published address and protocol."""
    addresses = await served.addresses()
    ways = [(address, protocol) for address in addresses for protocol in served.protocols]
    # Only there somebody waits in vain.
    hopeless = served.cloud == "router" and await served.modes() == {"Proxy"}
    patience = IN_VAIN if hopeless else PATIENCE
    # Each way has a counter of its own, so only the clients have to wait for each other.
    seen = dict(zip(ways, await asyncio.gather(*(_seen_by_all(served, *way, patience) for way in ways)), strict=True))
    return View(seen, await served.lab.naming(*addresses))


async def _seen_by_all(served: Served, address: str, protocol: str, patience: float) -> dict[str, Seen]:
    return {client: await _seen(served, client, address, protocol, patience) for client in (OUTSIDE, *INSIDE)}


async def _seen(served: Served, client: str, address: str, protocol: str, patience: float) -> Seen:
    before = await served.flows(address, protocol)
    answer: Answer | None
    try:
        answer = await ask(served.lab.hosts[client], address, 80, protocol, patience=patience)
    except UnservedError:
        answer = None
    return Seen(answer, await served.flows(address, protocol) > before)


def all_pass_the_load_balancer(found: View) -> None:
    """Proxy delivery, Proxy published: wherever a client is, the load balancer sees it and tells the pod who it is."""
    for what, protocol, seen in found.of(OUTSIDE, *INSIDE):
        assert seen.answer is not None, f"{what}: no answer"
        assert seen.passed, f"{what}: it did not pass the load balancer"
        assert protocol == "UDP" or seen.answer.header, f"{what}: no PROXY header arrived"
    for address, lines in found.rules.items():
        assert not lines, f"kube-proxy's rules name {address}: {lines}"


def inside_bypasses_the_load_balancer(found: View) -> None:
    """Proxy delivery, VIP published: nodes and pods go straight to a pod, and the header that it needs is missing."""
    for what, protocol, seen in found.of(OUTSIDE):
        assert seen.answer is not None, f"{what}: no answer"
        assert seen.passed, f"{what}: it did not pass the load balancer"
        assert protocol == "UDP" or seen.answer.header, f"{what}: no PROXY header arrived"
    for what, _, seen in found.of(*INSIDE):
        assert seen.answer is not None, f"{what}: no answer"
        assert not seen.passed, f"{what}: it passed the load balancer"
        assert seen.answer.header is None, f"{what}: a PROXY header arrived"
    for address, lines in found.rules.items():
        assert lines, f"no rule of kube-proxy names {address}"


def outside_is_served_with_its_own_address(found: View) -> None:
    """Destination kept, VIP published: the nodes know the address, so what is routed to them is served, source address and all."""
    for what, _, seen in found.of(OUTSIDE):
        assert seen.answer is not None, f"{what}: no answer"
        assert seen.answer.peer in lan_addresses(CLIENT), f"{what}: the pod saw {seen.answer.peer}"
        assert seen.passed, f"{what}: it did not pass the load balancer"
    for what, _, seen in found.of(*INSIDE):
        assert seen.answer is not None, f"{what}: no answer"
        assert not seen.passed, f"{what}: it passed the load balancer"
    for address, lines in found.rules.items():
        assert lines, f"no rule of kube-proxy names {address}"


def outside_is_not_served(found: View) -> None:
    """Destination kept, Proxy published: packets for the address reach a node that does not know it."""
    for what, _, seen in found.of(OUTSIDE):
        assert seen.answer is None, f"{what}: {seen.answer}"
    for address, lines in found.rules.items():
        assert not lines, f"kube-proxy's rules name {address}: {lines}"


# (cloud, published ipMode): the assertion.
ROWS: Final = {
    ("balancer", "Proxy"): all_pass_the_load_balancer,
    ("balancer", "VIP"): inside_bypasses_the_load_balancer,
    ("router", "VIP"): outside_is_served_with_its_own_address,
    ("router", "Proxy"): outside_is_not_served,
}


def other(ip_mode: str) -> str:
    """The mode that is not this one."""
    return {"VIP": "Proxy", "Proxy": "VIP"}[ip_mode]
