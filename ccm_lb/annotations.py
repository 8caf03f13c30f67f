"""The annotations that this product reads, typed and checked. A bad value is an error of the Service, never a silent default."""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import TypeVar

from ccm_lb import ipmode
from ccm_lb.errors import TerminalError
from ccm_lb.objects import IPMode, Service, ServicePort

__all__ = [
    "HEALTH_CHECK_PROTOCOL",
    "HOSTNAME",
    "IP_MODE",
    "PROXY_PROTOCOL",
    "PROXY_PROTOCOL_PORTS",
    "HealthCheckProtocol",
    "Options",
    "ProxyProtocol",
    "ip_mode",
    "parse",
    "unknown_ports",
]

IP_MODE = "ccm-lb.dev/ip-mode"
PROXY_PROTOCOL = "ccm-lb.dev/proxy-protocol"
PROXY_PROTOCOL_PORTS = "ccm-lb.dev/proxy-protocol-ports"
HEALTH_CHECK_PROTOCOL = "ccm-lb.dev/health-check-protocol"
HOSTNAME = "ccm-lb.dev/hostname"

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

    `ip_mode` may be a value that only a later Kubernetes has: the API server is asked before it is published.
    """

    ip_mode: IPMode | str | None = None
    proxy_protocol: ProxyProtocol | None = None
    proxy_protocol_ports: frozenset[int] | None = None
    health_check_protocol: HealthCheckProtocol | None = None
    hostname: str | None = None

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
    )


def ip_mode(service: Service) -> IPMode | str | None:
    """The ipMode that the Service's user asks for, known here or not."""
    value = service.metadata.annotations.get(IP_MODE)
    return None if value is None else ipmode.known(value)


def unknown_ports(service: Service) -> tuple[int, ...]:
    """The ports in PROXY_PROTOCOL_PORTS that the Service does not have."""
    return tuple(sorted((_ports(service) or frozenset()) - {port.port for port in service.spec.ports}))


def _choice(service: Service, name: str, values: type[ChoiceT]) -> ChoiceT | None:
    value = service.metadata.annotations.get(name)
    if value is None:
        return None
    try:
        return values(value)
    except ValueError:
        raise _wrong(name, value, " or ".join(values)) from None


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
