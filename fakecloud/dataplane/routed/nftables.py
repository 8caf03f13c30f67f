"""What may pass to an address that is routed, which next hop it takes, and how much has passed: nftables, by its command nft."""

import ipaddress
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fakecloud.dataplane.routed.chains import Names, Steering, answers, containers, rules
from fakecloud.models.listeners import Protocol

_TABLE = "inet fakecloud"
_FORWARDING = {"IPv4": "/proc/sys/net/ipv4/ip_forward", "IPv6": "/proc/sys/net/ipv6/conf/all/forwarding"}
# A client on the nodes' own network would be told to go to one node by itself from now on, past health checks and counters:
# of messages that redirect (ICMP), those about our addresses are dropped. Their bytes 24 and up are the address.
_BASE = f"""
add table {_TABLE}
delete table {_TABLE}
add table {_TABLE}
add map {_TABLE} v4 {{ type ipv4_addr : verdict; }}
add map {_TABLE} v6 {{ type ipv6_addr : verdict; }}
add map {_TABLE} v4_back {{ type ipv4_addr : verdict; }}
add map {_TABLE} v6_back {{ type ipv6_addr : verdict; }}
add chain {_TABLE} arriving {{ type filter hook prerouting priority mangle; }}
add chain {_TABLE} leaving {{ type route hook output priority mangle; }}
add rule {_TABLE} arriving ip daddr vmap @v4
add rule {_TABLE} arriving ip6 daddr vmap @v6
add rule {_TABLE} arriving ip saddr vmap @v4_back
add rule {_TABLE} arriving ip6 saddr vmap @v6_back
add set {_TABLE} v4_redirected {{ typeof @th,192,32; }}
add set {_TABLE} v6_redirected {{ typeof @th,192,128; }}
add rule {_TABLE} leaving icmp type redirect @th,192,32 @v4_redirected drop
add rule {_TABLE} leaving icmpv6 type nd-redirect @th,192,128 @v6_redirected drop
add rule {_TABLE} leaving ip daddr vmap @v4
add rule {_TABLE} leaving ip6 daddr vmap @v6
"""


class FirewallError(Exception):
    """nftables can't be used; the message says why and what helps."""


@dataclass(frozen=True)
class Counted:
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class _Made:
    """What is in the table for one address."""

    listeners: frozenset[Names] = frozenset()
    counters: frozenset[str] = frozenset()


class Firewall:
    """One table of its own, made at the start and removed at the end; other tables are never touched."""

    def __init__(self) -> None:
        """Raises FirewallError."""
        self._program = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
        if self._program is None:
            raise FirewallError("--delivery direct needs nft: apt-get install nftables")
        if Path(_FORWARDING["IPv4"]).read_text().strip() != "1":
            raise FirewallError("--delivery direct needs a machine that forwards: sysctl -w net.ipv4.ip_forward=1")
        self._run(_BASE)
        self._made: dict[str, _Made] = {}

    def admit(self, name: str, address: str, steerings: Sequence[Steering], sources: Sequence[str] | None) -> None:
        """Let exactly this pass to the address; flows and counters go on where a listener stays. Raises FirewallError."""
        chain, family = _chain(name, address), "ip6" if ":" in address else "ip"
        listeners = {Names(chain, one.protocol, one.port): one for one in steerings}
        before = self._made.get(chain)
        counters = frozenset().union(*(names.counters(one.counted) for names, one in listeners.items()))
        now = _Made(frozenset(listeners), counters)
        chains = [chain, f"{chain}_back", *(part for names in listeners for part in names.chains)]
        lines = [f"add counter {_TABLE} {counter}" for counter in sorted(counters - (before or _Made()).counters)]
        for names in listeners:
            lines += containers(names, family, _TABLE)
        for verb in ("add", "flush"):
            lines += [f"{verb} chain {_TABLE} {one}" for one in chains]
        if sources is not None:
            allowed = ", ".join(source for source in sources if (":" in source) == (":" in address))
            lines.append(f"add rule {_TABLE} {chain} {family} saddr != {{ {allowed} }} drop" if allowed
                         else f"add rule {_TABLE} {chain} drop")  # fmt: skip
        for names, one in listeners.items():
            lines += [f"add rule {_TABLE} {part} {rule}" for part, rule in rules(names, one, family)]
            lines.append(f"add rule {_TABLE} {chain} {one.protocol.lower()} dport {one.port} goto {names.base}")
            lines += [f"add rule {_TABLE} {chain}_back {rule}" for rule in answers(names, family, one.counted)]
        # What is no listener's is not the load balancer's; errors about its connections (ICMP) are.
        lines.append(f"add rule {_TABLE} {chain} meta l4proto {{ tcp, udp }} drop")
        # An answer goes to its client, not to the next hop by whose mark it was counted.
        lines.append(f"add rule {_TABLE} {chain}_back meta mark set 0")
        if before is None:
            lines += [f"add element {_TABLE} {into} {{ {element} }}" for into, element in _entries(chain, address)]
        else:
            lines += _removal(_Made(before.listeners - now.listeners, before.counters - now.counters))
        self._run("\n".join(lines) + "\n")
        self._made[chain] = now

    def forget(self, name: str, address: str) -> None:
        """Raises FirewallError."""
        chain = _chain(name, address)
        made = self._made.pop(chain, None)
        if made is not None:
            lines = [
                *(f"delete element {_TABLE} {into} {{ {element} }}" for into, element in _entries(chain, address)),
                *(f"{verb} chain {_TABLE} {one}" for one in (chain, f"{chain}_back") for verb in ("flush", "delete")),
                *_removal(made),
            ]
            self._run("\n".join(lines) + "\n")

    def counted(self) -> Mapping[str, Counted]:
        """By the name that `names_of` gives."""
        found = json.loads(self._run("", "-j", "list", "counters", "table", *_TABLE.split()))["nftables"]
        return {
            one["counter"]["name"]: Counted(one["counter"]["packets"], one["counter"]["bytes"])
            for one in found
            if "counter" in one
        }

    def close(self) -> None:
        """Raises FirewallError."""
        self._run(f"delete table {_TABLE}\n")

    def _run(self, script: str, *arguments: str) -> str:
        command = [str(self._program), *(arguments or ("-f", "-"))]
        ended = subprocess.run(command, input=script, capture_output=True, text=True, check=False)  # noqa: S603
        if ended.returncode != 0:
            first = ended.stderr.strip().splitlines()[0] if ended.stderr.strip() else f"exit code {ended.returncode}"
            hint = "; it needs the right NET_ADMIN" if "not permitted" in ended.stderr else ""
            raise FirewallError(f"nft refuses: {first}{hint}")
        return ended.stdout


def names_of(name: str, address: str, protocol: Protocol, port: int) -> Names:
    return Names(_chain(name, address), protocol, port)


def _chain(name: str, address: str) -> str:
    return f"{name}-{'6' if ':' in address else '4'}".replace("-", "_")


def _entries(chain: str, address: str) -> Sequence[tuple[str, str]]:
    """(map or set, element) by which packets that concern the address are found."""
    version = "v6" if ":" in address else "v4"
    return [
        (version, f"{address} : jump {chain}"),
        (f"{version}_back", f"{address} : jump {chain}_back"),
        (f"{version}_redirected", f"{int(ipaddress.ip_address(address)):#x}"),
    ]


def _removal(made: _Made) -> Sequence[str]:
    """Lines that take listeners out which nothing refers to; of chains all are emptied first, as they refer to each other."""
    listeners = sorted(made.listeners, key=lambda names: names.base)
    return [
        *(
            f"{verb} chain {_TABLE} {one}"
            for verb in ("flush", "delete")
            for names in listeners
            for one in names.chains
        ),
        *(f"delete map {_TABLE} {one}" for names in listeners for one in names.maps),
        *(f"delete set {_TABLE} {one}" for names in listeners for one in names.sets),
        *(f"delete counter {_TABLE} {one}" for one in sorted(made.counters)),
    ]
