"""Which addresses of a load balancer are fit to be published, and in which order."""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Mapping, Sequence

from ccm_lb.ipmode import Scope
from ccm_lb.objects import LoadBalancerIngress

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Kind(enum.StrEnum):
    """What an address is besides a load balancer's. Each is published only where a setting allows it."""

    LOOPBACK = "loopback"
    LINK_LOCAL = "link-local"
    UNSPECIFIED = "unspecified"
    MULTICAST = "multicast"
    NODE = "node"
    API_SERVER = "api-server"


_PRIVATE = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"))
)


def special(address: IPAddress) -> Kind | None:
    """The kind of a special address; None for one that machines elsewhere can reach. A mapped IPv4 address counts as what it maps."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_unspecified:
        return Kind.UNSPECIFIED
    if address.is_loopback:
        return Kind.LOOPBACK
    if address.is_link_local:
        return Kind.LINK_LOCAL
    return Kind.MULTICAST if address.is_multicast else None


def scope(ip: str) -> Scope:
    """Whether an address is one of the private ranges (RFC 1918, RFC 6598, RFC 4193)."""
    address = ipaddress.ip_address(ip)
    return Scope.PRIVATE if any(address.version == net.version and address in net for net in _PRIVATE) else Scope.PUBLIC


def canonical(ip: str) -> str:
    """The one way to write an address; IPv4 has no other. What is none is returned as it is."""
    try:
        return str(ipaddress.ip_address(ip)) if ":" in ip else ip
    except ValueError:
        return ip


class Owners:
    """Whose addresses are taken: those of nodes, by their names, and of the API server."""

    def __init__(self, nodes: Mapping[str, Sequence[str]], api_server: Sequence[str] = ()) -> None:
        self._nodes = {canonical(ip): name for name, ips in nodes.items() for ip in ips}
        self._api_server = frozenset(map(canonical, api_server))

    def kind(self, ip: str) -> Kind | None:
        """What `ip`, in canonical form, is besides a load balancer's address."""
        if ip in self._nodes:
            return Kind.NODE
        return Kind.API_SERVER if ip in self._api_server else special(ipaddress.ip_address(ip))

    def taken(self, ip: str) -> str:
        """Who else has this address, in words; empty: nobody."""
        if ip in self._nodes:
            return f"node {self._nodes[ip]}"
        return "the API server" if ip in self._api_server else ""


def refusal(ip: str, owners: Owners, allowed: frozenset[Kind]) -> str:
    """Why `ip` is not to be published, naming it and what would allow it; empty if it is fit."""
    kind = owners.kind(ip)
    if kind is None or kind in allowed:
        return ""
    what = f"is also the address of {owners.taken(ip)}" if owners.taken(ip) else f"is {_ARTICLES[kind]}"
    return f"{ip} {what}: not published unless --allow-addresses names {kind}"


_ARTICLES = {
    Kind.LOOPBACK: "a loopback address",
    Kind.LINK_LOCAL: "a link-local address",
    Kind.UNSPECIFIED: "the unspecified address",
    Kind.MULTICAST: "a multicast address",
}


def family(ip: str) -> str:
    """IPv4 or IPv6, as spec.ipFamilies has it."""
    return f"IPv{ipaddress.ip_address(ip).version}"


def in_order(
    ingress: Sequence[LoadBalancerIngress], families: Sequence[str]
) -> tuple[tuple[LoadBalancerIngress, ...], tuple[LoadBalancerIngress, ...]]:
    """
    The entries to publish, and those of families that the Service does not have.

    IPs come in the order of `families` (spec.ipFamilies; none: any) and else in the backend's, host names last. An entry
    that is there twice is published once.
    """
    distinct = tuple(dict.fromkeys(ingress))
    hosts = tuple(one for one in distinct if not one.ip)
    ips = [(family(one.ip), one) for one in distinct if one.ip]
    if not families:
        return (*(one for _, one in ips), *hosts), ()
    wanted = tuple(one for name in families for have, one in ips if have == name)
    return (*wanted, *hosts), tuple(one for have, one in ips if have not in families)


def missing(ingress: Sequence[LoadBalancerIngress], families: Sequence[str]) -> tuple[str, ...]:
    """The families that have no IP, where at least one has; host names and empty statuses stand for all."""
    have = {family(one.ip) for one in ingress if one.ip}
    return tuple(one for one in families if one not in have) if have else ()
