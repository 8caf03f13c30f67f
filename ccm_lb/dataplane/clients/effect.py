"""
What the clients of a Service get, by the service proxy, its version, the published ipMode, the delivery and externalTrafficPolicy.

Two facts carry everything. A client outside always reaches the load balancer first. A client on a node or in a pod reaches it only if the
node's service proxy leaves the address alone.
"""

from __future__ import annotations

import dataclasses
import enum

from ccm_lb.dataplane.clients import supportmatrix
from ccm_lb.dataplane.clients.supportmatrix import Honours, Verdict
from ccm_lb.dataplane.model import Confidence, Kind, Mode, ServiceProxy
from ccm_lb.objects import IPMode, LoadBalancerIngress


class Delivery(enum.StrEnum):
    """What a load balancer sends to: a node's port, a pod, or the very address that the client asked for."""

    NODE_PORT = "node-port"
    POD = "pod"
    ADDRESS = "address"


class Policy(enum.StrEnum):
    CLUSTER = "Cluster"
    LOCAL = "Local"


class Client(enum.StrEnum):
    OUTSIDE = "outside"
    NODE = "node"
    POD = "pod"


class Path(enum.StrEnum):
    LOAD_BALANCER = "through the load balancer"
    SHORT_CUT = "straight to a pod"
    BROKEN = "not at all"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one kind of client gets; `source` says where that is known from."""

    client: Client
    path: Path
    reason: str
    source: str


_KEP = "KEP-1860"
_PROXIER = "kubernetes v1.37.2, pkg/proxy"
_HERE = "by how addresses are routed"


def outcomes(
    proxy: ServiceProxy, ingress: LoadBalancerIngress, delivery: Delivery, policy: Policy
) -> tuple[Outcome, Outcome, Outcome]:
    """For clients outside, on nodes and in pods, in this order."""
    outside = _outside(proxy, ingress, delivery, policy)
    inside = _inside(proxy, ingress, policy)
    if inside.path is Path.LOAD_BALANCER and outside.path is not Path.LOAD_BALANCER:
        # Whoever reaches the load balancer gets from there what a client outside gets.
        inside = dataclasses.replace(outside, reason=f"{inside.reason}; from the load balancer on: {outside.reason}")
    return (
        outside,
        dataclasses.replace(inside, client=Client.NODE),
        dataclasses.replace(inside, client=Client.POD),
    )


def _outside(proxy: ServiceProxy, ingress: LoadBalancerIngress, delivery: Delivery, policy: Policy) -> Outcome:
    def got(path: Path, reason: str, source: str) -> Outcome:
        return Outcome(Client.OUTSIDE, path, reason, source)

    if delivery is Delivery.POD:
        return got(Path.LOAD_BALANCER, "which sends to pods itself; the service proxy has no part in it", _HERE)
    if proxy.kind is Kind.UNKNOWN:
        return got(Path.UNKNOWN, f"up to a node; what takes it from there is unknown, because {proxy.reason}", _HERE)
    if proxy.kind is Kind.NONE:
        return got(Path.BROKEN, "the load balancer sends to nodes, and nothing there implements Services", _HERE)
    if delivery is Delivery.ADDRESS and not _is_vip(ingress):
        return _kept_address(proxy, ingress)
    local = (
        "; only nodes with a pod of the Service answer, and the source address is kept"
        if policy is Policy.LOCAL
        else ""
    )
    where = (
        "the node's port"
        if delivery is Delivery.NODE_PORT
        else "the address itself, which the node takes for the Service"
    )
    return got(Path.LOAD_BALANCER, f"which delivers to {where}{local}", _KEP)


def _kept_address(proxy: ServiceProxy, ingress: LoadBalancerIngress) -> Outcome:
    mode, verdict = ingress.ip_mode, supportmatrix.ip_mode(proxy)
    if verdict.honours is Honours.YES:
        reason = f"packets for the address arrive at a node that with ipMode {mode} does not know it; VIP is right here"
        return Outcome(Client.OUTSIDE, Path.BROKEN, reason, verdict.source)
    if verdict.honours is Honours.NO:
        reason = f"only because {proxy.name} ignores ipMode {mode}; VIP is right here"
        return Outcome(Client.OUTSIDE, Path.LOAD_BALANCER, reason, verdict.source)
    return Outcome(Client.OUTSIDE, Path.UNKNOWN, f"whether a node takes the packets: {verdict.reason}", verdict.source)


def _inside(proxy: ServiceProxy, ingress: LoadBalancerIngress, policy: Policy) -> Outcome:
    if ingress.ip is None:
        reason = "only a host name is published, which no service proxy resolves"
        return Outcome(Client.POD, Path.LOAD_BALANCER, reason, _PROXIER)
    if proxy.kind is Kind.UNKNOWN:
        return Outcome(Client.POD, Path.UNKNOWN, proxy.reason, "")
    if proxy.kind is Kind.NONE:
        return Outcome(Client.POD, Path.LOAD_BALANCER, "nothing on the nodes knows the address", _HERE)
    verdict = supportmatrix.ip_mode(proxy)
    if verdict.honours is not Honours.NEVER_BOUND and _is_vip(ingress):
        return _short_cut(proxy, policy, verdict)
    path, reason = {
        Honours.NEVER_BOUND: (Path.LOAD_BALANCER, verdict.reason),
        Honours.YES: (Path.LOAD_BALANCER, f"ipMode {ingress.ip_mode} keeps the address off the nodes"),
        Honours.NO: (Path.SHORT_CUT, f"ipMode {ingress.ip_mode} is published and ignored: {verdict.reason}"),
        Honours.UNKNOWN: (Path.UNKNOWN, verdict.reason),
    }[verdict.honours]
    return Outcome(Client.POD, path, reason, verdict.source)


def _short_cut(proxy: ServiceProxy, policy: Policy, verdict: Verdict) -> Outcome:
    if proxy.kind is not Kind.KUBE_PROXY and verdict.honours is Honours.UNKNOWN:
        reason = f"VIP lets the node take the address; that {proxy.kind} does so is not known here"
        return Outcome(Client.POD, Path.UNKNOWN, reason, verdict.source)
    reason = "ipMode VIP: the node takes the address for the Service and the load balancer is bypassed"
    if policy is Policy.LOCAL and proxy.mode is Mode.IPVS:
        reason += "; with IPVS and policy Local, to pods on the same node alone where it has any"
    elif policy is Policy.LOCAL and proxy.kind is Kind.KUBE_PROXY:
        reason += "; policy Local does not bind clients inside the cluster"
    return Outcome(Client.POD, Path.SHORT_CUT, reason, _PROXIER if proxy.kind is Kind.KUBE_PROXY else verdict.source)


def _is_vip(ingress: LoadBalancerIngress) -> bool:
    """As kube-proxy asks it: a value that it does not know is not VIP."""
    return ingress.ip_mode in (None, IPMode.VIP)


def mismatch(proxy: ServiceProxy, ingress: LoadBalancerIngress) -> str:
    """
    What a Service's owner should be warned of: a published ipMode that this proxy ignores or contradicts; empty if there is nothing.

    Never on a guess: an unknown proxy, or an unknown version of a known one, gives no warning.
    """
    if ingress.ip is None or proxy.confidence is Confidence.UNKNOWN:
        return ""
    verdict = supportmatrix.ip_mode(proxy)
    if not _is_vip(ingress) and verdict.honours is Honours.NO:
        return (
            f"ipMode {ingress.ip_mode} of {ingress.ip} is ignored by the cluster's service proxy, {proxy.name}: clients inside the "
            f"cluster bypass the load balancer ({verdict.reason})"
        )
    if _is_vip(ingress) and verdict.honours is Honours.NEVER_BOUND:
        return (
            f"ipMode VIP of {ingress.ip} is not what the cluster's service proxy, {proxy.name}, does: clients inside the cluster "
            f"pass the load balancer ({verdict.reason})"
        )
    return ""
