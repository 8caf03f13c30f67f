"""
Reads what the kernel did with a connection: was the load balancer's address short-cut, or did the load balancer answer?

In a connection's conntrack entry the second half is how replies come. If they come from another address than the one that was asked for,
the node translated it: a short cut. The other way round it proves something only where the node's own table was read.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Collection, Iterator

from ccm_lb.dataplane import addresses

_PAIR = re.compile(r"\b(src|dst|sport|dport)=(\S+)")


class Answer(enum.StrEnum):
    SHORT_CUT = "short-cut"
    LOAD_BALANCER = "load balancer"
    CANNOT_TELL = "cannot tell"


@dataclasses.dataclass(frozen=True)
class Probed:
    answer: Answer
    reason: str


def contradicts(ip_mode: str | None, answer: Answer) -> bool:
    """Whether what was measured is not what the published ipMode (none: VIP) says. Of values not known here nothing is said."""
    said = {None: Answer.SHORT_CUT, "VIP": Answer.SHORT_CUT, "Proxy": Answer.LOAD_BALANCER}.get(ip_mode)
    return answer is not Answer.CANNOT_TELL and said is not None and answer is not said


@dataclasses.dataclass(frozen=True)
class Connection:
    """One TCP connection as its opener sees it."""

    source: str
    source_port: int
    address: str
    port: int


@dataclasses.dataclass(frozen=True)
class Entry:
    """One conntrack entry: (src, dst, sport, dport) as sent, and as replies come."""

    sent: tuple[str, str, str, str]
    reply: tuple[str, str, str, str]


def entries(text: str) -> Iterator[Entry]:
    """Of /proc/net/nf_conntrack or `conntrack -L`."""
    for line in text.splitlines():
        pairs = _PAIR.findall(line)
        names, values = [name for name, _ in pairs], [value for _, value in pairs]
        if names == ["src", "dst", "sport", "dport"] * 2:
            first, second = values[:4], values[4:]
            yield Entry((first[0], first[1], first[2], first[3]), (second[0], second[1], second[2], second[3]))


def reply_source(text: str, connection: Connection) -> str | None:
    """Where the replies of this connection come from; None where the table does not hold it."""
    ports = (str(connection.source_port), str(connection.port))
    for entry in entries(text):
        source, destination, *sent_ports = entry.sent
        if tuple(sent_ports) == ports and _same(source, connection.source) and _same(destination, connection.address):
            return entry.reply[0]
    return None


def bound(address: str, route: str | None) -> bool:
    """Whether `ip route get ADDRESS` says that it is this machine's own, as IPVS makes it (kube-ipvs0); loopback addresses always are."""
    known = addresses.address(address)
    return route is not None and route.split()[:1] == ["local"] and known is not None and not known.is_loopback


def unanswered(address: str, port: int, route: str | None, error: str) -> Probed:
    """What is known where no connection came about."""
    if bound(address, route):
        reason = f"{address} is bound to this machine, as IPVS does it, and nobody answers there: {error}"
        return Probed(Answer.SHORT_CUT, reason)
    return Probed(Answer.CANNOT_TELL, f"no connection to {address}:{port}: {error}")


def judge(connection: Connection, table: str | None, route: str | None, *, on_a_node: bool | None) -> Probed:
    """
    What the kernel's word amounts to.

    `table` and `route` are None where they could not be read; `on_a_node` whether this network namespace is a node's, None if unknown.
    """
    if bound(connection.address, route):
        return Probed(Answer.SHORT_CUT, f"{connection.address} is bound to this machine, as IPVS does it")
    if table is None:
        return Probed(Answer.CANNOT_TELL, "the connection table cannot be read: it takes root, on a node")
    replies = reply_source(table, connection)
    if replies is None:
        return Probed(Answer.CANNOT_TELL, "the connection is not in the table: a proxy by eBPF does not use it")
    if not _same(replies, connection.address):
        return Probed(
            Answer.SHORT_CUT, f"replies come from {replies}, to which the node translated {connection.address}"
        )
    if not on_a_node:
        reason = "this is no node's network, and the node behind it may still translate the address"
        return Probed(Answer.CANNOT_TELL, reason)
    return Probed(Answer.LOAD_BALANCER, f"replies come from {connection.address} itself")


def is_a_nodes(own: Collection[str], nodes: Collection[str]) -> bool:
    """Whether one of these own addresses is a node's."""
    known = {addresses.address(one) for one in nodes}
    return any(found in known for one in own if (found := addresses.address(one)) is not None)


def _same(one: str, other: str) -> bool:
    first = addresses.address(one)
    return first is not None and first == addresses.address(other)
