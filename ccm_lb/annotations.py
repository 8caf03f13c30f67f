"""The annotations that this product reads, typed and checked. A bad value is an error of the Service, never a silent default."""

from __future__ import annotations

import dataclasses
import enum
import ipaddress
import re
from typing import TypeVar

from ccm_lb import ipmode
from ccm_lb.errors import TerminalError
from ccm_lb.objects import IPMode, Service, ServicePort

__all__ = [
    "ADDRESSES",
    "ADDRESS_POOLS",
    "ADOPT",
    "HEALTH_CHECK_PROTOCOL",
    "HOSTNAME",
    "IP_MODE",
    "KEEP",
    "PAUSED",
    "PROXY_PROTOCOL",
    "PROXY_PROTOCOL_PORTS",
    "SOURCE_RANGES",
    "HealthCheckProtocol",
    "Options",
    "ProxyProtocol",
    "ip_mode",
    "keep",
    "parse",
    "paused",
    "restricts",
    "source_ranges",
    "unknown_ports",
]

IP_MODE = "ccm-lb.dev/ip-mode"
PROXY_PROTOCOL = "ccm-lb.dev/proxy-protocol"
PROXY_PROTOCOL_PORTS = "ccm-lb.dev/proxy-protocol-ports"
HEALTH_CHECK_PROTOCOL = "ccm-lb.dev/health-check-protocol"
HOSTNAME = "ccm-lb.dev/hostname"
PAUSED = "ccm-lb.dev/paused"
KEEP = "ccm-lb.dev/keep"
ADOPT = "ccm-lb.dev/adopt"
ADDRESSES = "ccm-lb.dev/addresses"
ADDRESS_POOLS = "ccm-lb.dev/address-pools"
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"

_ID = re.compile(r"[!-~]{1,255}")  # what clouds call things; it may get into a URL, where the backend quotes it
_DNS_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


ChoiceT = TypeVar("ChoiceT", bound=enum.StrEnum)


class ProxyProtocol(enum.StrEnum):
    """What a load balancer says of the client before its first byte."""

    NONE = "none"
    V1 = "v1"
    V2 = "v2"


class HealthCheckProtocol(enum.StrEnum):
    """How the cloud asks a node whether it may have traffic."""

    TCP = "tcp"
    HTTP = "http"


@dataclasses.dataclass(frozen=True)
class Options:
    """
    What a Service's annotations ask for; None where they say nothing.

    `ip_mode` may be a value that only a later Kubernetes has: the API server is asked before it is published. `source_ranges` are who
    may connect, by the field or the annotation, as networks in their one spelling; none: everybody.

    `adopt` is the cloud's id of a load balancer to take over, `addresses` are those that a new one is to have, by the annotation or
    spec.loadBalancerIP, and `address_pools` where the others come from. `keep`: it outlives the Service. `paused`: nothing is written.
    """

    ip_mode: IPMode | str | None = None
    proxy_protocol: ProxyProtocol | None = None
    proxy_protocol_ports: frozenset[int] | None = None
    health_check_protocol: HealthCheckProtocol | None = None
    hostname: str | None = None
    source_ranges: tuple[str, ...] = ()
    paused: bool = False
    keep: bool = False
    adopt: str | None = None
    addresses: tuple[str, ...] = ()
    address_pools: tuple[str, ...] = ()

    def proxy_protocol_on(self, port: ServicePort, default: ProxyProtocol) -> ProxyProtocol:
        """What holds for `port`, where the provider's settings say `default`; it exists for TCP alone."""
        chosen = self.proxy_protocol_ports is None or port.port in self.proxy_protocol_ports
        if port.protocol != "TCP" or not chosen:
            return ProxyProtocol.NONE
        return self.proxy_protocol or default


def parse(service: Service) -> Options:
    """
    The options of `service`.

    Raises:
        TerminalError: a value is not one that the annotation takes; names annotation, value and what is allowed.
    """
    return Options(
        ip_mode=ip_mode(service),
        proxy_protocol=_choice(service, PROXY_PROTOCOL, ProxyProtocol),
        proxy_protocol_ports=_ports(service),
        health_check_protocol=_choice(service, HEALTH_CHECK_PROTOCOL, HealthCheckProtocol),
        hostname=_hostname(service),
        source_ranges=source_ranges(service),
        paused=paused(service),
        keep=keep(service),
        adopt=_id(service, ADOPT),
        addresses=_addresses(service),
        address_pools=_names(service, ADDRESS_POOLS),
    )


def ip_mode(service: Service) -> IPMode | str | None:
    """The ipMode that the Service's user asks for, known here or not."""
    value = service.metadata.annotations.get(IP_MODE)
    return None if value is None else ipmode.known(value)


def source_ranges(service: Service) -> tuple[str, ...]:
    """
    Who may connect: spec.loadBalancerSourceRanges or, where that is empty, the annotation SOURCE_RANGES; none: everybody.

    Read as upstream's `GetLoadBalancerSourceRanges` does (k8s.io/cloud-provider/service/helpers): with spaces around a range, bits
    beyond the prefix, leading zeros and IPv4 inside IPv6, since all of these stand in Services that the API server took.

    Raises TerminalError: a range is none. To leave it out could open the load balancer, or shut somebody out.
    """
    field = service.spec.load_balancer_source_ranges
    if field:
        return tuple(dict.fromkeys(_network(one, f'spec.loadBalancerSourceRanges has "{one}"') for one in field))
    value = service.metadata.annotations.get(SOURCE_RANGES, "").strip()
    given = f'annotation {SOURCE_RANGES} is "{value}"'
    return tuple(dict.fromkeys(_network(one, given) for one in value.split(","))) if value else ()


def paused(service: Service) -> bool:
    """Whether nothing is to be written for the Service. Raises TerminalError: the annotation is neither true nor false."""
    return _flag(service, PAUSED)


def keep(service: Service) -> bool:
    """Whether the load balancer is to outlive the Service. Raises TerminalError: the annotation is neither true nor false."""
    return _flag(service, KEEP)


def restricts(ranges: tuple[str, ...]) -> bool:
    """Whether these source ranges keep anybody out: 0.0.0.0/0 alone does not."""
    return any(not one.endswith("/0") for one in ranges)


def unknown_ports(service: Service) -> tuple[int, ...]:
    """The ports in PROXY_PROTOCOL_PORTS that the Service does not have."""
    return tuple(sorted((_ports(service) or frozenset()) - {port.port for port in service.spec.ports}))


def _network(text: str, given: str) -> str:
    expected = f"{given}: expected ranges such as 10.0.0.0/8"
    address, slash, prefix = text.strip().partition("/")
    if not (slash and prefix.isascii() and prefix.isdigit()) or "%" in address:
        raise TerminalError(expected)
    head, colon, dotted = address.rpartition(":")
    if "." in dotted:
        # Go's parser takes leading zeros for nothing, Python's refuses them.
        address = head + colon + re.sub(r"\b0+(?=\d)", "", dotted)
    try:
        network = ipaddress.ip_network(f"{address}/{int(prefix)}", strict=False)
    except ValueError:
        raise TerminalError(expected) from None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= 96:
        mapped = network.network_address.ipv4_mapped
        return f"{mapped}/{network.prefixlen - 96}" if mapped is not None else str(network)
    return str(network)


def _choice(service: Service, name: str, values: type[ChoiceT]) -> ChoiceT | None:
    value = service.metadata.annotations.get(name)
    if value is None:
        return None
    try:
        return values(value)
    except ValueError:
        raise _wrong(name, value, " or ".join(values)) from None


def _flag(service: Service, name: str) -> bool:
    value = service.metadata.annotations.get(name, "false")
    if value not in ("true", "false"):
        raise _wrong(name, value, "true or false")
    return value == "true"


def _id(service: Service, name: str) -> str | None:
    value = service.metadata.annotations.get(name)
    if value is not None and not _ID.fullmatch(value):
        raise _wrong(name, value, "what the cloud calls it, without spaces")
    return value


def _names(service: Service, name: str) -> tuple[str, ...]:
    value = service.metadata.annotations.get(name)
    if value is None:
        return ()
    names = [part.strip() for part in value.split(",")]
    if not all(map(_ID.fullmatch, names)):
        raise _wrong(name, value, "names separated by commas")
    return tuple(dict.fromkeys(names))


def _addresses(service: Service) -> tuple[str, ...]:
    field, value = service.spec.load_balancer_ip.strip(), service.metadata.annotations.get(ADDRESSES)
    if value is None:
        # Whatever stands there was taken by the API server, which does not look: only a backend that carries it out refuses it.
        return (_canonical(field) or field,) if field else ()
    found = [_canonical(part.strip()) for part in value.split(",")]
    addresses = tuple(one for one in found if one)
    if len(addresses) < len(found) or len({":" in one for one in addresses}) < len(addresses):
        raise _wrong(ADDRESSES, value, "an IP address, or one of each family separated by a comma")
    if field and (_canonical(field) or field) not in addresses:
        raise TerminalError(
            f'annotation {ADDRESSES} is "{value}", and spec.loadBalancerIP is "{field}": expected the same; remove one of them'
        )
    return addresses


def _canonical(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _ports(service: Service) -> frozenset[int] | None:
    value = service.metadata.annotations.get(PROXY_PROTOCOL_PORTS)
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 65536 for part in parts):
        raise _wrong(PROXY_PROTOCOL_PORTS, value, "port numbers separated by commas")
    return frozenset(map(int, parts))


def _hostname(service: Service) -> str | None:
    value = service.metadata.annotations.get(HOSTNAME)
    if value is not None and not _DNS_NAME.fullmatch(value):
        raise _wrong(HOSTNAME, value, "a DNS name such as web.example.com")
    return value


def _wrong(name: str, value: str, expected: str) -> TerminalError:
    return TerminalError(f'annotation {name} is "{value}": expected {expected}; remove it for the default')
