"""
The annotations that this backend reads besides the product's own. They have the names that OpenStack's own controller gave them.

A bad value is an error of the Service, never a silent default.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Callable
from typing import Any

from ccm_lb.annotations import ProxyProtocol
from ccm_lb.errors import TerminalError
from ccm_lb.objects import Service

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"


@dataclasses.dataclass(frozen=True)
class OpenStackOptions:
    """What a Service's annotations ask of OpenStack; None where they say nothing."""

    internal: bool = False
    address: str | None = None
    floating_network: str | None = None
    floating_subnet: str | None = None
    keep_floating_ip: bool = False
    subnet: str | None = None
    network: str | None = None
    member_subnet: str | None = None
    flavor: str | None = None
    availability_zone: str | None = None
    proxy_protocol: ProxyProtocol | None = None
    connection_limit: int = -1
    timeout_client_data: int | None = None
    timeout_member_connect: int | None = None
    timeout_member_data: int | None = None
    timeout_tcp_inspect: int | None = None
    monitor: bool | None = None
    monitor_delay: int | None = None
    monitor_timeout: int | None = None
    monitor_retries: int | None = None
    monitor_retries_down: int | None = None


NAMES = {
    "internal": INTERNAL,
    "address": PREFIX + "load-balancer-address",
    "floating_network": PREFIX + "floating-network-id",
    "floating_subnet": PREFIX + "floating-subnet-id",
    "keep_floating_ip": PREFIX + "keep-floatingip",
    "subnet": PREFIX + "subnet-id",
    "network": PREFIX + "network-id",
    "member_subnet": PREFIX + "member-subnet-id",
    "flavor": PREFIX + "flavor-id",
    "availability_zone": PREFIX + "availability-zone",
    "proxy_protocol": PREFIX + "proxy-protocol",
    "connection_limit": PREFIX + "connection-limit",
    "timeout_client_data": PREFIX + "timeout-client-data",
    "timeout_member_connect": PREFIX + "timeout-member-connect",
    "timeout_member_data": PREFIX + "timeout-member-data",
    "timeout_tcp_inspect": PREFIX + "timeout-tcp-inspect",
    "monitor": PREFIX + "enable-health-monitor",
    "monitor_delay": PREFIX + "health-monitor-delay",
    "monitor_timeout": PREFIX + "health-monitor-timeout",
    "monitor_retries": PREFIX + "health-monitor-max-retries",
    "monitor_retries_down": PREFIX + "health-monitor-max-retries-down",
}
"""The annotation of each option."""


def parse(service: Service) -> OpenStackOptions:
    """The options of `service`. Raises TerminalError: names annotation, value and what is allowed."""
    given: dict[str, Any] = {}
    for option, name in NAMES.items():
        value = service.metadata.annotations.get(name, "").strip()
        if not value:
            continue
        take, expected = _KINDS.get(option, (str, "an id"))
        try:
            given[option] = take(value)
        except ValueError:
            raise TerminalError(
                f'annotation {name} is "{value}": expected {expected}; remove it for the default'
            ) from None
    return OpenStackOptions(**given)


def keeps_floating_ip(service: Service) -> bool:
    """Whether the floating IP outlives the Service; whatever cannot be read keeps it, since what is freed is gone."""
    value = service.metadata.annotations.get(NAMES["keep_floating_ip"], "").strip()
    return value.lower() not in ("", "false")


def _flag(value: str) -> bool:
    return {"true": True, "false": False}[value.lower()] if value.lower() in ("true", "false") else _no()


def _no() -> bool:
    raise ValueError


def _number(least: int, most: int) -> Callable[[str], int]:
    def take(value: str) -> int:
        number = int(value)
        if not least <= number <= most:
            raise ValueError
        return number

    return take


def _proxy_protocol(value: str) -> ProxyProtocol:
    known = {"true": ProxyProtocol.V1, "false": ProxyProtocol.NONE, "v1": ProxyProtocol.V1, "v2": ProxyProtocol.V2}
    if value.lower() not in known:
        raise ValueError
    return known[value.lower()]


def _address(value: str) -> str:
    return str(ipaddress.ip_address(value))


_LONGEST = 24 * 24 * 60 * 60 * 1000  # milliseconds that Octavia takes as a timeout
_KINDS: dict[str, tuple[Callable[[str], object], str]] = {
    **dict.fromkeys(("internal", "keep_floating_ip", "monitor"), (_flag, "true or false")),
    "address": (_address, "an IP address"),
    "availability_zone": (str, "the name of an availability zone"),
    "proxy_protocol": (_proxy_protocol, "true, false, v1 or v2"),
    "connection_limit": (_number(-1, 2**31 - 1), "a number, -1 for none"),
    **{
        name: (_number(0, _LONGEST), f"milliseconds from 0 to {_LONGEST}")
        for name in ("timeout_client_data", "timeout_member_connect", "timeout_member_data", "timeout_tcp_inspect")
    },
    **dict.fromkeys(("monitor_delay", "monitor_timeout"), (_number(1, 3600), "seconds from 1 to 3600")),
    **dict.fromkeys(("monitor_retries", "monitor_retries_down"), (_number(1, 10), "a number from 1 to 10")),
}
