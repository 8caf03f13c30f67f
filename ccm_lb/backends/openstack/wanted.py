"""The load balancer that a Service asks for, in Octavia's words; no I/O."""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ccm_lb import portstatus
from ccm_lb.annotations import HealthCheckProtocol, Options, ProxyProtocol
from ccm_lb.backends.openstack import names
from ccm_lb.backends.openstack.config import OpenStackConfig
from ccm_lb.backends.openstack.model import OVN, Abilities, Json, Wanted, WantedListener, WantedPool
from ccm_lb.backends.openstack.options import OpenStackOptions
from ccm_lb.errors import PortsError, TerminalError
from ccm_lb.objects import Node, PortStatus, Service, ServicePort

KUBE_PROXY_PORT, KUBE_PROXY_PATH = (
    10256,
    "/healthz",
)  # where kube-proxy says whether its node should get new connections
_NOBODY = {
    "IPv4": "240.0.0.0/32",
    "IPv6": "100::/128",
}  # never a client: reserved, and the prefix for what is thrown away
_AFFINITY_SECONDS = 10_800  # where the Service names none; Kubernetes' own default


@dataclasses.dataclass(frozen=True)
class Asked:
    """Everything that a load balancer is made from."""

    service: Service
    options: Options
    own: OpenStackOptions
    config: OpenStackConfig
    abilities: Abilities

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(self.service.spec.ip_families) or ("IPv4",)

    def proxy_protocol(self, port: ServicePort) -> ProxyProtocol:
        """What holds for one port: the product's annotation, else OpenStack's own, else the setting."""
        default = self.config.proxy_protocol if self.own.proxy_protocol is None else self.own.proxy_protocol
        return self.options.proxy_protocol_on(port, default)

    @property
    def local(self) -> bool:
        """Whether nodes without a pod of the Service must get no traffic."""
        return self.service.spec.external_traffic_policy == "Local" and bool(self.service.spec.health_check_node_port)

    @property
    def check(self) -> tuple[int, str] | None:
        """Port and path that are asked over HTTP whether a node may have traffic; None: each port's own node port is asked."""
        if self.options.health_check_protocol is HealthCheckProtocol.TCP:
            return None
        if self.local:
            # kube-proxy answers there with 503 on nodes without an endpoint of this Service.
            return self.service.spec.health_check_node_port, KUBE_PROXY_PATH
        if self.config.ask_kube_proxy and self.options.health_check_protocol is None:
            return KUBE_PROXY_PORT, KUBE_PROXY_PATH
        return None


def unserved(asked: Asked) -> list[PortStatus]:
    """The ports that get no listener, each with the reason."""
    return [
        PortStatus(port=port.port, protocol=port.protocol, error=error)
        for port in asked.service.spec.ports
        if (error := _error(port, asked.abilities))
    ]


def _error(port: ServicePort, abilities: Abilities) -> str | None:
    if not port.node_port:
        return portstatus.NO_NODE_PORT
    known = ("TCP", "UDP", "SCTP") if abilities.sctp else ("TCP", "UDP")
    return None if port.protocol in known else portstatus.PROTOCOL_NOT_SUPPORTED


def wanted(asked: Asked, nodes: Sequence[Node], fixed: Json) -> Wanted:
    """
    The load balancer. Raises TerminalError for what this cloud cannot do, PortsError where no port can be served.

    `fixed` is what it is made with and keeps.
    """
    refused = unserved(asked)
    if len(refused) == len(asked.service.spec.ports):
        raise PortsError(f"the ports {portstatus.words(refused)} cannot be served", refused)
    keys = {(port.protocol, port.port) for port in refused}
    ports = [port for port in asked.service.spec.ports if (port.protocol, port.port) not in keys]
    return Wanted(fixed, tuple(_listener(asked, port, nodes) for port in ports))


def _listener(asked: Asked, port: ServicePort, nodes: Sequence[Node]) -> WantedListener:
    own = asked.own
    settings: dict[str, Any] = {
        "name": names.listener(port.protocol, port.port),
        "connection_limit": own.connection_limit,
    }
    for name in ("timeout_client_data", "timeout_member_connect", "timeout_member_data", "timeout_tcp_inspect"):
        if (value := getattr(own, name)) is not None:
            settings[name] = value
    if asked.abilities.source_ranges:
        settings["allowed_cidrs"] = list(source_ranges(asked))
    return WantedListener(port.protocol, port.port, settings, _pool(asked, port, nodes))


def source_ranges(asked: Asked) -> tuple[str, ...]:
    """
    Who may connect, none for everybody: the ranges of the families that the load balancer has, since Octavia refuses others.

    Where all are of another family nobody may, which an empty list would not say.
    """
    ranges = asked.options.source_ranges
    fitting = tuple(one for one in ranges if ("IPv6" if ":" in one else "IPv4") in asked.families)
    return fitting or (tuple(_NOBODY[family] for family in asked.families) if ranges else ())


def _pool(asked: Asked, port: ServicePort, nodes: Sequence[Node]) -> WantedPool:
    protocol = _pool_protocol(asked, port)
    settings = {
        "name": names.pool(port.protocol, port.port, protocol),
        "lb_algorithm": asked.config.algorithm
        or ("SOURCE_IP_PORT" if asked.abilities.provider == OVN else "ROUND_ROBIN"),
        "session_persistence": _persistence(asked.service, port),
    }
    monitor = _monitor(asked, port)
    probed = asked.check[0] if asked.check and monitor and monitor["type"] == "HTTP" else None
    return WantedPool(protocol, settings, tuple(_members(asked, port, nodes, probed)), monitor)


def _pool_protocol(asked: Asked, port: ServicePort) -> str:
    header = asked.proxy_protocol(port)
    if header is ProxyProtocol.NONE:
        return port.protocol
    able = asked.abilities.proxy_protocol_v2 if header is ProxyProtocol.V2 else asked.abilities.proxy_protocol
    if not able:
        major, minor = asked.abilities.version
        provider = asked.abilities.provider or "the cloud's default"
        raise TerminalError(
            f"port {port.port}/{port.protocol} asks for PROXY protocol {header}, which this cloud does not have"
            f" (provider {provider}, API {major}.{minor}): remove it, or choose another provider"
        )
    return "PROXYV2" if header is ProxyProtocol.V2 else "PROXY"


def _persistence(service: Service, port: ServicePort) -> dict[str, Any] | None:
    """Behind a proxy the nodes see one client, the load balancer: it is the only one that can tell clients apart."""
    if service.spec.session_affinity != "ClientIP":
        return None
    found: dict[str, Any] = {"type": "SOURCE_IP"}
    if port.protocol != "TCP":  # for TCP Octavia takes no time
        client_ip = (service.spec.session_affinity_config or {}).get("clientIP") or {}
        found["persistence_timeout"] = client_ip.get("timeoutSeconds") or _AFFINITY_SECONDS
    return found


def _monitor(asked: Asked, port: ServicePort) -> dict[str, Any] | None:
    own, config = asked.own, asked.config
    wished = config.monitor if own.monitor is None else own.monitor
    if not wished:
        if asked.local:
            raise TerminalError(
                "externalTrafficPolicy is Local and health monitors are off, so that traffic would go to nodes without pods of the"
                " Service: turn them on (the setting `monitor`, the annotation loadbalancer.openstack.org/enable-health-monitor)"
            )
        return None
    found: dict[str, Any] = {
        "name": names.listener(port.protocol, port.port),
        "delay": own.monitor_delay or config.monitor_delay,
        "timeout": own.monitor_timeout or config.monitor_timeout,
        "max_retries": own.monitor_retries or config.monitor_retries,
        "max_retries_down": own.monitor_retries_down or config.monitor_retries_down,
    }
    if asked.check is not None and asked.abilities.http_monitor(port.protocol):
        return {**found, "type": "HTTP", "http_method": "GET", "url_path": asked.check[1], "expected_codes": "200"}
    if asked.local and port.protocol != "TCP":
        # A node without a pod drops what comes to its node port; TCP sees that, the others take silence for an answer.
        major, minor = asked.abilities.version
        raise TerminalError(
            f"port {port.port}/{port.protocol} and externalTrafficPolicy Local need a check by HTTP, which this cloud does not have"
            f" (provider {asked.abilities.provider or 'default'}, API {major}.{minor}): use externalTrafficPolicy Cluster"
        )
    if asked.options.health_check_protocol is HealthCheckProtocol.HTTP and asked.abilities.http_monitor(port.protocol):
        return {**found, "type": "HTTP", "http_method": "GET", "url_path": "/", "expected_codes": "200"}
    return {**found, "type": {"TCP": "TCP", "UDP": "UDP-CONNECT", "SCTP": "SCTP"}[port.protocol]}


def _members(asked: Asked, port: ServicePort, nodes: Sequence[Node], probed: int | None) -> Iterator[Json]:
    """
    Each field of each member, since a batch resets what it does not name.

    One address for each node, of the first family that it has: a load balancer with addresses of both families sends to either.
    """
    seen = set()
    for node in nodes:
        address = next(filter(None, (node.internal_ip(family) for family in asked.families)), None)
        if address is None or address in seen:
            continue
        seen.add(address)
        yield {
            "name": names.cut(node.name),
            "address": str(ipaddress.ip_address(address)),
            "protocol_port": port.node_port,
            "monitor_port": probed,
            "subnet_id": asked.own.member_subnet,
            "weight": 1,
            "backup": False,
        }


def same(existing: object, asked: object) -> bool:
    """Whether Octavia already has what is asked for; what it filled in by itself is its own affair."""
    if isinstance(asked, Mapping):
        return isinstance(existing, Mapping) and all(same(existing.get(name), value) for name, value in asked.items())
    if isinstance(asked, list) and (existing is None or isinstance(existing, list)):
        return sorted(map(str, existing or ())) == sorted(map(str, asked))
    return existing == asked
