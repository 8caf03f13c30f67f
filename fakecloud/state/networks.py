"""The networks that traffic may be forwarded to: without this limit the data plane would be an open relay."""

import ipaddress
from collections.abc import Iterable, Sequence
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

# Where a machine's cloud hands out that machine's credentials: AWS, Google, Azure and most others; Alibaba; and their like in IPv6
# (link-local, AWS, Google, Oracle, Scaleway, and the first one by NAT64).
METADATA_NETWORKS = (
    "169.254.0.0/16",
    "100.100.100.200/32",
    "fe80::/10",
    "fd00:ec2::/32",
    "fd20:ce::254/128",
    "fd00:c1::a9fe:a9fe/128",
    "fd00:42::42/128",
    "64:ff9b::a9fe:0/112",
)

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True)
class AddressSet:
    """Addresses by network; an IPv4 address that is written inside IPv6 counts as the IPv4 address that it is."""

    networks: tuple[Network, ...]
    # Not among them, but for what `networks` names inside of these.
    excluded: tuple[Network, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str], excluded: Iterable[str] = ()) -> "AddressSet":
        return cls(*(tuple(ipaddress.ip_network(text) for text in each) for each in (texts, excluded)))

    def __contains__(self, address: str) -> bool:
        parsed = _parsed(address)
        around = _first(self.excluded, parsed)
        return any(parsed in network and (around is None or _inside(network, around)) for network in self.networks)

    def excluding(self, address: str) -> Network | None:
        """The excluded network that the address is in."""
        return _first(self.excluded, _parsed(address))

    def __str__(self) -> str:
        return ", ".join(map(str, self.networks))


def target_networks(named: Sequence[str] = ()) -> AddressSet:
    """Where traffic may go: the default networks or those that are named; to a metadata service only when it is named itself."""
    return AddressSet.of(named or DEFAULT_TARGET_NETWORKS, METADATA_NETWORKS)


def _parsed(address: str) -> IPAddress:
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _first(networks: Iterable[Network], address: IPAddress) -> Network | None:
    return next((network for network in networks if address in network), None)


def _inside(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.prefixlen >= outer.prefixlen
