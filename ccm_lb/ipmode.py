"""
Which ipMode an address gets, and why: one table, asked from top to bottom (KEP-1860).

A backend says how its load balancers treat traffic (`Traffic`), the Service and the cluster add the rest (`Inputs`); `decide` answers with
mode, reason and warnings. The tables of docs/ipmode.md are made from `RULES` and `WARNINGS`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import NamedTuple

from ccm_lb.objects import IPMode

__all__ = [
    "RULES",
    "WARNINGS",
    "Caution",
    "Decision",
    "Delivery",
    "Inputs",
    "PortTraffic",
    "Rule",
    "Scope",
    "ServiceProxyHint",
    "Traffic",
    "decide",
    "known",
]


class Delivery(enum.StrEnum):
    """What the destination of a packet is when it reaches a node."""

    KEPT = "destination kept"  # the load balancer's address and port
    REWRITTEN = (
        "destination rewritten"  # the node's address and node port, usually on a connection of the load balancer's own
    )
    UNKNOWN = "unknown"


class Scope(enum.StrEnum):
    """From where an address is reached; clouds deliver differently to the two."""

    PUBLIC = "public"
    PRIVATE = "private"


class ServiceProxyHint(enum.StrEnum):
    """As much of the cluster's service proxy as the decision takes into account."""

    IPTABLES = "kube-proxy (iptables)"
    NFTABLES = "kube-proxy (nftables)"
    IPVS = "kube-proxy (ipvs)"
    OTHER = "another"
    UNKNOWN = "unknown"


class PortTraffic(NamedTuple):
    """What the load balancer does with one port: `proxy_protocol` is "v1" or "v2", `terminates` is "TLS" or "HTTP"; empty: neither."""

    port: int
    protocol: str = "TCP"
    proxy_protocol: str = ""
    terminates: str = ""

    def __str__(self) -> str:
        return f"{self.port}/{self.protocol}"

    @property
    def reason(self) -> str:
        """Why traffic for the port must not miss the load balancer; empty if it may."""
        return f"PROXY protocol {self.proxy_protocol}" if self.proxy_protocol else self.terminates


@dataclasses.dataclass(frozen=True)
class Traffic:
    """
    How a Service's load balancer treats traffic. A backend makes it from the settings that it makes the load balancer from.

    `enforces_source_ranges`: whether the cloud shuts out whom the Service's source ranges do not name; None, nothing said, is no yes.
    """

    delivery: Delivery = Delivery.UNKNOWN
    ports: tuple[PortTraffic, ...] = ()
    enforces_source_ranges: bool | None = None
    probes_from_own_address: bool = False  # health probes have the load balancer's address as their source
    probes_to_own_address: bool = False  # health probes have it as their destination
    probes_ask_kube_proxy: bool = (
        False  # its /healthz or a healthCheckNodePort, where nodes that are about to go answer 503
    )
    default: IPMode | str | None = None  # what the provider's settings say
    private_default: IPMode | str | None = None  # the same, for private addresses


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Everything that the decision for one address depends on; `override` is the annotation's value."""

    traffic: Traffic = Traffic()
    scope: Scope = Scope.PUBLIC
    override: str | None = None
    source_ranges: bool = False  # whether the Service has any that keep somebody out
    known_to_kube_proxy: bool = True  # whether they stand in the field: kube-proxy does not read the annotation
    local_policy: bool = False  # externalTrafficPolicy Local
    service_proxy: ServiceProxyHint = ServiceProxyHint.UNKNOWN
    taken: str = ""  # whose address it is besides, for example "node n2"; empty: nobody's

    @property
    def needy(self) -> tuple[PortTraffic, ...]:
        """The ports whose traffic must not miss the load balancer."""
        return tuple(port for port in self.traffic.ports if port.reason)

    @property
    def default(self) -> IPMode | str | None:
        """The provider's, for this kind of address."""
        private = self.traffic.private_default if self.scope is Scope.PRIVATE else None
        return private or self.traffic.default

    def enforced_by_nodes(self, *, vip: bool) -> bool:
        """Whether kube-proxy sees the client and the load balancer's address, and so enforces the source ranges."""
        return vip and self.traffic.delivery is Delivery.KEPT and self.known_to_kube_proxy

    @property
    def ipvs_hides_probes(self) -> bool:
        return self.service_proxy is ServiceProxyHint.IPVS and self.traffic.probes_from_own_address


@dataclasses.dataclass(frozen=True)
class Rule:
    """One row: where `applies`, the mode is `mode` (None: what the inputs name), because of `because`."""

    name: str
    when: str
    mode: IPMode | None
    because: str  # formatted with mode, ports, override, scope and taken
    applies: Callable[[Inputs], bool]


RULES: tuple[Rule, ...] = (
    Rule(
        "taken",
        "the address is also a node's or the API server's, and a setting allows that",
        IPMode.PROXY,
        "the address is also that of {taken}, which VIP would cut off",
        lambda i: bool(i.taken),
    ),
    Rule(
        "annotation",
        "the annotation `ccm-lb.dev/ip-mode` is set",
        None,
        "the annotation ccm-lb.dev/ip-mode says so",
        lambda i: i.override is not None,
    ),
    Rule(
        "destination-kept",
        "the cloud keeps the destination address",
        IPMode.VIP,
        "packets reach the nodes with the load balancer's address, which they accept with VIP alone",
        lambda i: i.traffic.delivery is Delivery.KEPT,
    ),
    Rule(
        "probes-to-own-address",
        "health probes go to the load balancer's own address",
        IPMode.VIP,
        "health probes go to the load balancer's address, which nodes accept with VIP alone",
        lambda i: i.traffic.probes_to_own_address,
    ),
    Rule(
        "proxy-protocol",
        "PROXY protocol on at least one port",
        IPMode.PROXY,
        "only the load balancer adds what {ports} expect",
        lambda i: any(port.proxy_protocol for port in i.needy),
    ),
    Rule(
        "termination",
        "TLS or HTTP ends at the load balancer on at least one port",
        IPMode.PROXY,
        "only the load balancer does what {ports} need",
        lambda i: bool(i.needy),
    ),
    Rule(
        "ipvs-probes",
        "kube-proxy runs in mode ipvs, and health probes come from the load balancer's own address",
        IPMode.PROXY,
        "with VIP and IPVS the address sits on every node, which then never answers the load balancer's probes",
        lambda i: i.ipvs_hides_probes,
    ),
    Rule(
        "provider",
        "the provider has a default; for private addresses perhaps another one",
        None,
        "it is the provider's default for {scope} addresses",
        lambda i: i.default is not None,
    ),
    Rule(
        "destination-rewritten",
        "the cloud rewrites the destination to a node's address and node port",
        IPMode.PROXY,
        "the load balancer sends to node ports, so nothing on the nodes has to know its address",
        lambda i: i.traffic.delivery is Delivery.REWRITTEN,
    ),
    Rule(
        "nothing-known", "none of these", IPMode.VIP, "nothing speaks against Kubernetes' own default", lambda _: True
    ),
)


@dataclasses.dataclass(frozen=True)
class Caution:
    """What a mode that was chosen brings with it: said where `applies`, which is asked with whether the mode is VIP."""

    name: str
    when: str
    says: str  # formatted with mode and ports
    applies: Callable[[Inputs, bool], bool]


WARNINGS: tuple[Caution, ...] = (
    Caution(
        "bypass",
        "VIP, and a port has PROXY protocol, TLS or HTTP at the load balancer",
        "clients inside the cluster bypass the load balancer, and {ports} get connections without it",
        lambda i, vip: vip and bool(i.needy),
    ),
    Caution(
        "unreachable",
        "not VIP, and the cloud keeps the destination",
        "clients outside the cluster are not served: with ipMode {mode} the nodes drop packets for the load balancer's address",
        lambda i, vip: not vip and i.traffic.delivery is Delivery.KEPT,
    ),
    Caution(
        "ipvs-probes",
        "VIP, kube-proxy in mode ipvs, and probes come from the load balancer's own address",
        "with IPVS the nodes never answer the load balancer's health probes, so all of them become unhealthy",
        lambda i, vip: vip and i.ipvs_hides_probes,
    ),
    Caution(
        "ipvs-local",
        "VIP, kube-proxy in mode ipvs, and `externalTrafficPolicy: Local`",
        "with IPVS and policy Local, clients in the own network of a node without a pod of the Service get no answer",
        lambda i, vip: vip and i.local_policy and i.service_proxy is ServiceProxyHint.IPVS,
    ),
    Caution(
        "probes-dropped",
        "not VIP, and probes go to the load balancer's own address",
        "with ipMode {mode} the nodes do not answer health probes that go to the load balancer's address",
        lambda i, vip: not vip and i.traffic.probes_to_own_address,
    ),
    Caution(
        "source-ranges-inside",
        "not VIP, and the load balancer enforces source ranges (`loadBalancerSourceRanges`, or the annotation)",
        "clients inside the cluster arrive at the load balancer with a node's address, which the source ranges may shut out",
        lambda i, vip: not vip and i.source_ranges and i.traffic.enforces_source_ranges is True,
    ),
    Caution(
        "source-ranges-nowhere",
        "source ranges, and neither the cloud enforces them nor, for want of the field or of VIP with the destination kept, kube-proxy",
        "nobody enforces the source ranges, so the load balancer is open to all: this cloud does not, and kube-proxy cannot here",
        lambda i, vip: (
            i.source_ranges and i.traffic.enforces_source_ranges is False and not i.enforced_by_nodes(vip=vip)
        ),
    ),
    Caution(
        "source-ranges-unsaid",
        "source ranges, and the backend does not say whether the cloud enforces them, nor does kube-proxy",
        "the load balancer may be open to all: the backend does not say that its cloud enforces the source ranges",
        lambda i, vip: (
            i.source_ranges and i.traffic.enforces_source_ranges is None and not i.enforced_by_nodes(vip=vip)
        ),
    ),
)


@dataclasses.dataclass(frozen=True)
class Decision:
    """
    The mode of one address, the rule (its name) that gave it, and the reason as half a sentence.

    `mixture` says that ports which could do without the load balancer take the same way; empty where they agree.
    """

    mode: IPMode | str
    rule: str
    reason: str
    mixture: str = ""
    warnings: tuple[str, ...] = ()


def decide(inputs: Inputs) -> Decision:
    """The first row of `RULES` that applies, and every row of `WARNINGS` that does."""
    rule = next(one for one in RULES if one.applies(inputs))
    named = inputs.override if rule.name == "annotation" else inputs.default
    mode = rule.mode or known(named or IPMode.VIP)
    vip = mode is IPMode.VIP
    words = {
        "mode": mode,
        "ports": ", ".join(f"{port} ({port.reason})" for port in inputs.needy),
        "scope": inputs.scope,
        "taken": inputs.taken,
    }
    warnings = tuple(one.says.format(**words) for one in WARNINGS if one.applies(inputs, vip))
    return Decision(mode, rule.name, rule.because.format(**words), _mixture(inputs, vip=vip), warnings)


def _mixture(inputs: Inputs, *, vip: bool) -> str:
    others = [port for port in inputs.traffic.ports if not port.reason]
    if vip or not inputs.needy or not others:
        return ""
    return (
        f"ipMode is one for all ports of an address: {', '.join(map(str, others))} could do without the load balancer, "
        f"{', '.join(map(str, inputs.needy))} cannot, so clients inside the cluster pass it on all of them"
    )


def known(mode: str) -> IPMode | str:
    """The IPMode of that name; a value that a later Kubernetes adds stays the string that it is."""
    try:
        return IPMode(mode)
    except ValueError:
        return mode
