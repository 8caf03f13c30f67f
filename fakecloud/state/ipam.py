"""Addresses out of pools, as plain values: taking one returns a new pool."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace

from fakecloud.models.base import Family

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Pool:
    """A network and the addresses in it that are given out, as integers (a thousand of them hash quickly)."""

    name: str
    network: Network
    taken: frozenset[int] = frozenset()
    # Every load balancer gets the same address; they differ by their ports.
    shared: bool = False

    @property
    def family(self) -> Family:
        return "IPv4" if self.network.version == 4 else "IPv6"

    @property
    def usable(self) -> range:
        """What may be given out: not the network's own first and last address, where it has these."""
        first, size = int(self.network.network_address), self.network.num_addresses
        return range(first, first + size) if size <= 2 else range(first + 1, first + size - 1)

    def holds(self, address: str) -> bool:
        """Whether the address is one that this pool gives out."""
        parsed = ipaddress.ip_address(address)
        return parsed.version == self.network.version and int(parsed) in self.usable

    def is_free(self, address: str) -> bool:
        return self.shared or int(ipaddress.ip_address(address)) not in self.taken

    def lowest_free(self) -> str | None:
        """The lowest address that is not given out, or None when the pool is exhausted."""
        free = next((number for number in self.usable if self.shared or number not in self.taken), None)
        # The network's own type turns the number back, so that a small IPv6 number never becomes IPv4.
        return None if free is None else str(type(self.network.network_address)(free))

    def with_taken(self, address: str) -> "Pool":
        return self.with_all_taken([address])

    def with_all_taken(self, addresses: Iterable[str]) -> "Pool":
        return replace(self, taken=self.taken.union(int(ipaddress.ip_address(address)) for address in addresses))

    def without(self, address: str) -> "Pool":
        return replace(self, taken=self.taken - {int(ipaddress.ip_address(address))})


def default_name(network: Network) -> str:
    """How a pool is called that was given as a network only, e.g. pool-127.84.0.0-16."""
    return f"pool-{network.network_address}-{network.prefixlen}"
