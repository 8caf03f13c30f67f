"""
What a cloud can do, as data: the core asks a backend for nothing else, and tells the user what it leaves out.

The conformance kit checks that what is declared is so.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ccm_lb import annotations as ccm_annotations
from ccm_lb import portstatus
from ccm_lb.annotations import HealthCheckProtocol, Options, ProxyProtocol
from ccm_lb.errors import TerminalError
from ccm_lb.objects import Node, PortStatus, Service

__all__ = ["FAMILIES", "PROTOCOLS", "Abilities", "Honoured", "as_json", "refused_ports"]

PROTOCOLS = frozenset({"TCP", "UDP", "SCTP"})
FAMILIES = frozenset({"IPv4", "IPv6"})


class Honoured(enum.StrEnum):
    """What a Service may ask of a load balancer and not every backend carries out; what `Abilities` comes to for the core."""

    SOURCE_RANGES = "spec.loadBalancerSourceRanges"  # and the annotation
    SESSION_AFFINITY = "spec.sessionAffinity"  # with its timeout
    EXTERNAL_TRAFFIC_POLICY = "spec.externalTrafficPolicy"  # Local: nodes without an endpoint get no traffic
    LOAD_BALANCER_IP = "spec.loadBalancerIP"
    APP_PROTOCOL = "spec.ports[].appProtocol"
    PROXY_PROTOCOL = ccm_annotations.PROXY_PROTOCOL  # also on some of the ports
    HEALTH_CHECK_PROTOCOL = ccm_annotations.HEALTH_CHECK_PROTOCOL
    ADDRESSES = ccm_annotations.ADDRESSES  # of a new load balancer
    ADDRESS_POOLS = ccm_annotations.ADDRESS_POOLS  # of a new load balancer, and of a family that is added
    ADOPT = ccm_annotations.ADOPT  # by ensure_load_balancer
    KEEP = ccm_annotations.KEEP  # by release_load_balancer


@dataclasses.dataclass(frozen=True, kw_only=True)
class Abilities:
    """
    Silence is a no: without arguments it is the smallest load balancer there is, one for TCP over IPv4 that is open to all.

    A port or a family that is not here is kept from the backend, and its user told. Of the rest that a Service asks for and is not here,
    a Warning names what is not carried out.
    """

    protocols: frozenset[str] = frozenset({"TCP"})  # of TCP, UDP and SCTP
    mixed_protocols: bool = False  # several of them on one load balancer
    families: frozenset[str] = frozenset({"IPv4"})  # of IPv4 and IPv6
    dual_stack: bool = False  # both on one load balancer
    source_ranges: bool = (
        False  # shuts out whom they do not name; `Traffic.enforces_source_ranges` may say more of one Service
    )
    session_affinity: bool = False  # with its timeout
    local_policy: bool = (
        False  # externalTrafficPolicy Local: asks the healthCheckNodePort, so nodes without an endpoint get no traffic
    )
    proxy_protocols: frozenset[ProxyProtocol] = frozenset()  # the versions of the header, also on some of the ports
    health_checks: frozenset[HealthCheckProtocol] = frozenset()  # that the annotation may choose
    app_protocol: bool = False  # spec.ports[].appProtocol
    requested_address: bool = False  # spec.loadBalancerIP and the annotation for addresses, of a new load balancer
    address_pools: bool = False  # the annotation that says where an address comes from
    adoption: bool = False  # takes over a load balancer that is nobody's
    keeping: bool = False  # has release_load_balancer
    shared_load_balancers: bool = False  # Services may have one and the same, and its address
    max_targets: int | None = None  # nodes behind one load balancer; the core chooses which
    batch_node_update: bool = False  # a change of many nodes takes no more requests than a change of one
    annotations: frozenset[str] = (
        frozenset()
    )  # of its own: full names, or how they begin and a * ("acme.example.com/*")

    def __post_init__(self) -> None:
        for wrong in self._complaints():
            raise ValueError(f"Abilities: {wrong}")

    def _complaints(self) -> Iterator[str]:
        for name, known in (("protocols", PROTOCOLS), ("families", FAMILIES)):
            given = getattr(self, name)
            if not given or given - known:
                yield f"{name} is {sorted(given)}: expected one or more of {', '.join(sorted(known))}"
        if self.dual_stack and self.families != FAMILIES:
            yield f"dual_stack is true with the families {sorted(self.families)}: expected both"
        if self.mixed_protocols and len(self.protocols) < 2:
            yield f"mixed_protocols is true with the protocols {sorted(self.protocols)}: expected several"
        if ProxyProtocol.NONE in self.proxy_protocols:
            yield "proxy_protocols has none: expected v1, v2, both, or nothing"
        if self.max_targets is not None and self.max_targets < 1:
            yield f"max_targets is {self.max_targets}: expected 1 or more, or None for no limit"

    @property
    def honours(self) -> frozenset[str]:
        """What of a Service's wishes is carried out: members of `Honoured`, and annotations of the backend's own."""
        said = {
            Honoured.SOURCE_RANGES: self.source_ranges,
            Honoured.SESSION_AFFINITY: self.session_affinity,
            Honoured.EXTERNAL_TRAFFIC_POLICY: self.local_policy,
            Honoured.LOAD_BALANCER_IP: self.requested_address,
            Honoured.APP_PROTOCOL: self.app_protocol,
            Honoured.PROXY_PROTOCOL: bool(self.proxy_protocols),
            Honoured.HEALTH_CHECK_PROTOCOL: bool(self.health_checks),
            Honoured.ADDRESSES: self.requested_address,
            Honoured.ADDRESS_POOLS: self.address_pools,
            Honoured.ADOPT: self.adoption,
            Honoured.KEEP: self.keeping,
        }
        return frozenset({str(name) for name, yes in said.items() if yes}) | self.annotations


def as_json(abilities: Abilities) -> dict[str, Any]:
    """For reports and pages, in the order of the fields; sets are sorted lists."""
    given = {field.name: getattr(abilities, field.name) for field in dataclasses.fields(abilities)}
    return {name: sorted(map(str, value)) if isinstance(value, frozenset) else value for name, value in given.items()}


def refused_ports(service: Service, abilities: Abilities) -> tuple[PortStatus, ...]:
    """The ports that such a cloud cannot serve, each with its error; of protocols that do not mix, that of the first port is served."""
    errors: dict[tuple[str, int], str] = {}
    for port in service.spec.ports:
        if port.protocol not in abilities.protocols:
            errors[port.protocol, port.port] = portstatus.PROTOCOL_NOT_SUPPORTED
    rest = [port for port in service.spec.ports if (port.protocol, port.port) not in errors]
    for port in rest:
        if not abilities.mixed_protocols and port.protocol != rest[0].protocol:
            errors[port.protocol, port.port] = portstatus.MIXED_PROTOCOL_NOT_SUPPORTED
    return tuple(PortStatus(port=port, protocol=protocol, error=error) for (protocol, port), error in errors.items())


def within(service: Service, abilities: Abilities) -> Service:
    """
    The Service without the ports and families that such a cloud cannot serve; itself where there are none.

    Raises TerminalError: no family is left.
    """
    refused = {(port.protocol, port.port) for port in refused_ports(service, abilities)}
    ports = tuple(port for port in service.spec.ports if (port.protocol, port.port) not in refused)
    families = tuple(one for one in service.spec.ip_families if one in abilities.families)
    if service.spec.ip_families and not families:
        raise TerminalError(
            f"spec.ipFamilies is {', '.join(service.spec.ip_families)}, and the cloud has load balancers for "
            f"{' and '.join(sorted(abilities.families))} alone: make the Service anew with that family, or with another class"
        )
    families = families if abilities.dual_stack else families[:1]
    if (ports, families) == (service.spec.ports, service.spec.ip_families):
        return service
    return service.model_copy(
        update={"spec": service.spec.model_copy(update={"ports": ports, "ip_families": families})}
    )


def check_options(options: Options, abilities: Abilities) -> None:
    """
    Raises TerminalError: an annotation asks for another kind of what the cloud has, such as another version of the PROXY header.

    A cloud that has none at all goes without, and the user is warned.
    """
    for name, asked, able in (
        (ccm_annotations.PROXY_PROTOCOL, options.proxy_protocol, abilities.proxy_protocols),
        (ccm_annotations.HEALTH_CHECK_PROTOCOL, options.health_check_protocol, abilities.health_checks),
    ):
        if able and asked not in (None, ProxyProtocol.NONE, *able):
            raise TerminalError(
                f'annotation {name} is "{asked}", and the cloud has {" and ".join(sorted(able))} alone: choose from these, or remove it'
            )


def within_limit(uid: str, nodes: Sequence[Node], abilities: Abilities) -> Sequence[Node]:
    """As many of `nodes` as the cloud takes, in their order: by rank for the Service of this UID, so that a new node moves one at most."""
    limit = abilities.max_targets
    if limit is None or len(nodes) <= limit:
        return nodes
    ranks: Mapping[str, bytes] = {
        node.name: hashlib.blake2b(f"{uid}/{node.name}".encode(), digest_size=8).digest() for node in nodes
    }
    chosen = set(sorted(ranks, key=ranks.__getitem__)[:limit])
    return tuple(node for node in nodes if node.name in chosen)
