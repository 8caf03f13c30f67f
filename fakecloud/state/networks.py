"""The networks that traffic may be forwarded to: without this limit the data plane would be an open relay."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from fakecloud.state.ipam import Network

# Loopback, the private ranges (RFC 1918), the shared range of RFC 6598, and IPv6's counterparts.
DEFAULT_TARGET_NETWORKS = (
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "::1/128",
    "fc00::/7",
)


@dataclass(frozen=True)
class AddressSet:
    """Addresses by network; an IPv4 address that is written inside IPv6 counts as the IPv4 address that it is."""

    networks: tuple[Network, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "AddressSet":
        return cls(tuple(ipaddress.ip_network(text) for text in texts))

    def __contains__(self, address: str) -> bool:
        parsed = ipaddress.ip_address(address)
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        return any((mapped or parsed) in network for network in self.networks)

    def __str__(self) -> str:
        return ", ".join(map(str, self.networks))
