"""What may pass to an address that is routed, and how much has passed: nftables, by its command nft."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fakecloud.models.listeners import Protocol

_TABLE = "inet fakecloud"
_FORWARDING = {"IPv4": "/proc/sys/net/ipv4/ip_forward", "IPv6": "/proc/sys/net/ipv6/conf/all/forwarding"}


class FirewallError(Exception):
    """nftables can't be used; the message says why and what helps."""


@dataclass(frozen=True)
class Passage:
    """One listener: what becomes of its packets (accept, drop or reject)."""

    protocol: Protocol
    port: int
    verdict: str = "accept"


@dataclass(frozen=True)
class Counted:
    packets: int = 0
    bytes: int = 0


class Firewall:
    """One table of its own, made at the start and removed at the end; other tables are never touched."""

    def __init__(self) -> None:
        """Raises FirewallError."""
        self._program = shutil.which("nft") or shutil.which("nft", path="/usr/sbin:/sbin")
        if self._program is None:
            raise FirewallError("--delivery direct needs nft: apt-get install nftables")
        if Path(_FORWARDING["IPv4"]).read_text().strip() != "1":
            raise FirewallError("--delivery direct needs a machine that forwards: sysctl -w net.ipv4.ip_forward=1")
        base = "\n".join(
            f"add chain {_TABLE} {hook} {{ type filter hook {hook} priority 0; }}\n"
            f"add rule {_TABLE} {hook} ip daddr vmap @v4\nadd rule {_TABLE} {hook} ip6 daddr vmap @v6"
            for hook in ("forward", "output")
        )
        self._run(
            f"add table {_TABLE}\ndelete table {_TABLE}\nadd table {_TABLE}\n"
            f"add map {_TABLE} v4 {{ type ipv4_addr : verdict; }}\n"
            f"add map {_TABLE} v6 {{ type ipv6_addr : verdict; }}\n{base}\n"
        )
        self._counters: dict[str, frozenset[str]] = {}

    def admit(self, name: str, address: str, passages: Sequence[Passage], sources: Sequence[str] | None) -> None:
        """Let exactly this pass to the address; counters go on where a listener stays. Raises FirewallError."""
        chain, family, known = (
            _chain(name, address),
            "ip6" if ":" in address else "ip",
            "v6" if ":" in address else "v4",
        )
        counters = frozenset(_counter(chain, one.protocol, one.port) for one in passages)
        lines = [f"add counter {_TABLE} {counter}" for counter in sorted(counters)]
        lines += [f"add chain {_TABLE} {chain}", f"flush chain {_TABLE} {chain}"]
        if sources is not None:
            allowed = ", ".join(source for source in sources if (":" in source) == (":" in address))
            lines.append(f"add rule {_TABLE} {chain} {family} saddr != {{ {allowed} }} drop" if allowed
                         else f"add rule {_TABLE} {chain} drop")  # fmt: skip
        for one in passages:
            protocol = one.protocol.lower()
            verdict = "reject with tcp reset" if (one.verdict, protocol) == ("reject", "tcp") else one.verdict
            counter = _counter(chain, one.protocol, one.port)
            lines.append(f"add rule {_TABLE} {chain} {protocol} dport {one.port} counter name {counter} {verdict}")
        # What is no listener's is not the load balancer's; errors about its connections (ICMP) are.
        lines += [f"add rule {_TABLE} {chain} meta l4proto {{ tcp, udp }} drop"]
        lines += [f"delete counter {_TABLE} {gone}" for gone in sorted(self._counters.get(chain, counters) - counters)]
        if chain not in self._counters:
            lines.append(f"add element {_TABLE} {known} {{ {address} : jump {chain} }}")
        self._run("\n".join(lines) + "\n")
        self._counters[chain] = counters

    def forget(self, name: str, address: str) -> None:
        """Raises FirewallError."""
        chain, known = _chain(name, address), "v6" if ":" in address else "v4"
        counters = self._counters.pop(chain, None)
        if counters is not None:
            lines = [
                f"delete element {_TABLE} {known} {{ {address} }}",
                f"flush chain {_TABLE} {chain}",
                f"delete chain {_TABLE} {chain}",
                *(f"delete counter {_TABLE} {counter}" for counter in sorted(counters)),
            ]
            self._run("\n".join(lines) + "\n")

    def counted(self) -> Mapping[str, Counted]:
        """By the name that `counter_of` gives."""
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


def counter_of(name: str, address: str, protocol: Protocol, port: int) -> str:
    return _counter(_chain(name, address), protocol, port)


def _chain(name: str, address: str) -> str:
    return f"{name}-{'6' if ':' in address else '4'}".replace("-", "_")


def _counter(chain: str, protocol: Protocol, port: int) -> str:
    return f"{chain}_{protocol.lower()}_{port}"
