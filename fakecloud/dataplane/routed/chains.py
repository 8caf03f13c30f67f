"""
One listener of an address that is routed, as chains of nftables: who is new, where flows go, what is counted.

Flows are remembered here and not by conntrack: nodes answer clients directly, and of a connection whose answers pass it by,
conntrack calls every packet after the first one invalid. A packet's mark is its next hop, see `nexthops`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fakecloud.models.listeners import Protocol

# Seconds. A connection without a packet is forgotten after RFC 5382's 2 hours and 4 minutes; one that is not answered, or
# that the client has ended, much sooner; a repeated SYN comes within the 67 s that Linux tries for by default.
_ESTABLISHED = 7440.0
_DATAGRAMS = 60.0
_OPENING = 120.0
_ENDING = 60.0
_REPEATED = 70.0
_MOST_FLOWS = 262_144
_SYN = "tcp flags & (syn | ack | fin | rst) == syn"
_END = "tcp flags & (fin | rst) != 0"


@dataclass(frozen=True)
class Steering:
    """
    What the kernel does for one listener; a next hop is named by its mark. Durations in seconds.

    `slots` are the next hops of new flows in their turns, or with `by_source` by the hash of the client's address. Flows of
    other next hops go on, but for those in `cut`.
    """

    protocol: Protocol
    port: int
    slots: Sequence[int] = ()
    by_source: bool = False
    affinity_seconds: float | None = None
    idle_seconds: float | None = None
    counted: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    # accept, drop everything, or reject new flows.
    verdict: str = "accept"


@dataclass(frozen=True)
class Names:
    """What a listener's chains, maps and counters are called; `chain` is its address's."""

    chain: str
    protocol: Protocol
    port: int

    @property
    def base(self) -> str:
        return f"{self.chain}_{self.protocol.lower()}_{self.port}"

    def counter(self, what: str, mark: int | None = None) -> str:
        """`what` is new (packets are flows), in or out; with a mark, of one next hop."""
        return f"{self.base}_{what}" if mark is None else f"{self.base}_{what}_{mark:x}"

    def counters(self, marks: Collection[int]) -> frozenset[str]:
        return frozenset(self.counter(what, mark) for what in ("new", "in", "out") for mark in (None, *marks))

    @property
    def chains(self) -> Sequence[str]:
        return [self.base, *(f"{self.base}_{part}" for part in ("known", "over", "new", "stuck", "pick", "begin"))]

    @property
    def maps(self) -> Sequence[str]:
        return [f"{self.base}_{part}" for part in ("flows", "clients")]

    @property
    def sets(self) -> Sequence[str]:
        return [f"{self.base}_{part}" for part in ("opening", "ending")] if self.protocol == "TCP" else []


def containers(names: Names, family: str, table: str) -> Iterator[str]:
    """Lines that make what outlives a change; made already is fine. `family` is ip or ip6."""
    key, client = _key(family, "saddr", names.protocol, "sport"), f"{family} saddr"
    size = f"size {_MOST_FLOWS}; flags dynamic,timeout;"
    yield f"add map {table} {names.base}_flows {{ typeof {key} : meta mark; {size} }}"
    yield f"add map {table} {names.base}_clients {{ typeof {client} : meta mark; {size} }}"
    for name in names.sets:
        yield f"add set {table} {name} {{ typeof {key}; {size} }}"


def rules(names: Names, steering: Steering, family: str) -> Iterator[tuple[str, str]]:
    """(chain, rule) in their order; the chains are empty before."""
    base, protocol = names.base, steering.protocol.lower()
    key = _key(family, "saddr", steering.protocol, "sport")
    flows = f"@{base}_flows"
    yield base, f"counter name {names.counter('in')}"
    if steering.verdict == "drop":
        yield base, "drop"
        return
    if protocol == "tcp":
        # A connection from a port that was used before is new, a repeated SYN is not.
        yield base, f"{_SYN} {key} != @{base}_opening goto {base}_new"
    yield base, f"meta mark set {key} map {flows} goto {base}_known"
    yield base, f"goto {base}_new"
    for rule in _known(names, steering, key):
        yield f"{base}_known", rule
    if protocol == "tcp":
        yield f"{base}_over", f"update @{base}_ending {{ {key} timeout {_time(_ENDING)} }}"
        yield f"{base}_over", f"update {flows} {{ {key} timeout {_time(_ENDING)} : meta mark }} accept"
        yield f"{base}_over", "accept"
    reset = "reject with tcp reset" if protocol == "tcp" else "reject"
    if steering.verdict == "reject" or not steering.slots:
        yield f"{base}_new", reset if steering.verdict == "reject" or protocol == "tcp" else "drop"
        return
    if steering.affinity_seconds is not None:
        yield f"{base}_new", f"meta mark set {family} saddr map @{base}_clients goto {base}_stuck"
    yield f"{base}_new", f"goto {base}_pick"
    yield f"{base}_stuck", f"meta mark {_some(steering.slots)} goto {base}_begin"
    yield f"{base}_stuck", f"goto {base}_pick"
    # Without a seed the kernel takes another one for each rule, so that every change would move every client.
    kind, seed = (f"jhash {family} saddr", " seed 0x1") if steering.by_source else ("numgen inc", "")
    turns = ", ".join(f"{turn} : {mark:#x}" for turn, mark in enumerate(steering.slots))
    yield f"{base}_pick", f"meta mark set {kind} mod {len(steering.slots)}{seed} map {{ {turns} }} goto {base}_begin"
    for rule in _begin(names, steering, family, key):
        yield f"{base}_begin", rule


def answers(names: Names, family: str, marks: Collection[int]) -> Iterator[str]:
    """Rules that count what comes back, as far as it comes by here."""
    protocol = names.protocol.lower()
    yield f"{protocol} sport {names.port} counter name {names.counter('out')}"
    if marks:
        key = _key(family, "daddr", names.protocol, "dport")
        yield (
            f"{protocol} sport {names.port} meta mark set {key} map @{names.base}_flows "
            f"counter name meta mark map {_counters(names, 'out', marks)}"
        )


def _known(names: Names, steering: Steering, key: str) -> Iterator[str]:
    base, flows = names.base, f"@{names.base}_flows"
    if steering.protocol == "UDP":
        if steering.cut:
            yield f"meta mark {_some(steering.cut)} goto {base}_new"
        yield from _count(names, "in", steering.counted)
        yield f"update {flows} {{ {key} timeout {_time(steering.idle_seconds or _DATAGRAMS)} : meta mark }} accept"
    else:
        if steering.cut:
            yield f"meta mark {_some(steering.cut)} delete @{base}_opening {{ {key} }} reject with tcp reset"
        yield from _count(names, "in", steering.counted)
        # One key a rule: nft has no registers for more.
        yield f"{_END} delete @{base}_opening {{ {key} }}"
        yield f"{_END} update @{base}_ending {{ {key} timeout {_time(_ENDING)} }}"
        yield f"{key} @{base}_ending goto {base}_over"
        yield f"update {flows} {{ {key} timeout {_time(steering.idle_seconds or _ESTABLISHED)} : meta mark }} accept"
    # Reached where the map is full.
    yield "accept"


def _begin(names: Names, steering: Steering, family: str, key: str) -> Iterator[str]:
    base, flows = names.base, f"@{names.base}_flows"
    # Packets in the middle of a connection that was forgotten, say by a restart, are sent on and not counted.
    first = f"{_SYN} " if steering.protocol == "TCP" else ""
    yield f"{first}counter name {names.counter('new')}"
    for rule in _count(names, "new", steering.counted):
        yield first + rule
    yield from _count(names, "in", steering.counted)
    if steering.affinity_seconds is not None:
        client, clients = f"{family} saddr", f"@{base}_clients"
        # `update` alone would renew the time and keep the next hop that was there.
        yield f"delete {clients} {{ {client} : meta mark }}"
        yield f"update {clients} {{ {client} timeout {_time(steering.affinity_seconds)} : meta mark }}"
    if steering.protocol == "TCP":
        yield f"delete @{base}_ending {{ {key} }}"
        yield f"{_SYN} update @{base}_opening {{ {key} timeout {_time(_REPEATED)} }}"
    lasting = _OPENING if steering.protocol == "TCP" else steering.idle_seconds or _DATAGRAMS
    yield f"delete {flows} {{ {key} : meta mark }}"
    yield f"update {flows} {{ {key} timeout {_time(lasting)} : meta mark }} accept"
    yield "accept"


def _key(family: str, address: str, protocol: Protocol, port: str) -> str:
    """
    A client's address and port.

    Of an IPv6 address the last 12 bytes: nft 1.0.6 writes the value of a map over the end of a key of more than 16. Clients
    that differ in the first 4 alone, and come from the same port, share a next hop.
    """
    client = f"{family} {address}" if family == "ip" else {"saddr": "@nh,96,96", "daddr": "@nh,224,96"}[address]
    return f"{client} . {protocol.lower()} {port}"


def _count(names: Names, what: str, marks: Collection[int]) -> Iterator[str]:
    if marks:
        yield f"counter name meta mark map {_counters(names, what, marks)}"


def _counters(names: Names, what: str, marks: Collection[int]) -> str:
    pairs: Mapping[int, str] = {mark: names.counter(what, mark) for mark in sorted(marks)}
    return "{ " + ", ".join(f'{mark:#x} : "{name}"' for mark, name in pairs.items()) + " }"


def _some(marks: Collection[int]) -> str:
    return "{ " + ", ".join(f"{mark:#x}" for mark in sorted(set(marks))) + " }"


def _time(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
