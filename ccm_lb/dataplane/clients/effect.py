"""
What the clients of a Service get, by the service proxy, its version, the published ipMode, the delivery and externalTrafficPolicy.

Two facts carry everything. A client outside always reaches the load balancer first. A client on a node or in a pod reaches it only if the
node's service proxy leaves the address alone. Where it does not, policy Local makes a difference between nodes: by whether there is a pod
of the Service on the client's own.
"""

from __future__ import annotations

import dataclasses
import enum

from ccm_lb.dataplane.clients import supportmatrix
from ccm_lb.dataplane.clients.supportmatrix import Honours, Verdict
from ccm_lb.dataplane.model import DETECT_LOCAL, NO_DETECTOR, Confidence, Delivery, Kind, Mode, ServiceProxy
from ccm_lb.objects import IPMode, LoadBalancerIngress


class Policy(enum.StrEnum):
    CLUSTER = "Cluster"
    LOCAL = "Local"


class Client(enum.StrEnum):
    OUTSIDE = "outside"
    NODE = "node"  # a process of the node, or a pod in its network (hostNetwork)
    POD = "pod"


class Endpoints(enum.StrEnum):
    """Whether the client's own node has a ready pod of the Service."""

    HERE = "with a ready pod of the Service"
    ELSEWHERE = "without a ready pod of the Service"


class Path(enum.StrEnum):
    LOAD_BALANCER = "through the load balancer"
    SHORT_CUT = "straight to a pod"
    BROKEN = "not at all"
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Outcome:
    """
    What one kind of client gets; `source` says where that is known from.

    `endpoints`: of which nodes it is true; None for all of them.
    """

    client: Client
    path: Path
    reason: str
    source: str
    endpoints: Endpoints | None = None


@dataclasses.dataclass(frozen=True)
class Spec:
    """What of a Service's spec makes a difference."""

    policy: Policy = Policy.CLUSTER
    affinity: bool = False  # sessionAffinity ClientIP
    source_ranges: bool = False  # loadBalancerSourceRanges are given


_KEP = "KEP-1860"
_PROXIER = "kubernetes v1.37.2, pkg/proxy"
_HERE = "by how addresses are routed"


def outcomes(proxy: ServiceProxy, ingress: LoadBalancerIngress, delivery: Delivery, spec: Spec) -> tuple[Outcome, ...]:
    """For clients outside, on nodes and in pods, in this order; for nodes with and without a pod of the Service apart where they differ."""
    outside = _outside(proxy, ingress, delivery, spec)
    inside = _inside(proxy, ingress, spec)
    if inside.path is Path.LOAD_BALANCER and outside.path is not Path.LOAD_BALANCER:
        # Whoever reaches the load balancer gets from there what a client outside gets.
        inside = dataclasses.replace(outside, reason=f"{inside.reason}; from the load balancer on: {outside.reason}")
    everywhere = [dataclasses.replace(inside, client=client) for client in (Client.NODE, Client.POD)]
    if inside.path is not Path.SHORT_CUT or spec.policy is not Policy.LOCAL:
        return (outside, *everywhere)
    return (outside, *(row for one in everywhere for row in _local(proxy, one)))


def _outside(proxy: ServiceProxy, ingress: LoadBalancerIngress, delivery: Delivery, spec: Spec) -> Outcome:
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
    more = (
        "; only nodes with a pod of the Service answer, and the source address is kept"
        if spec.policy is Policy.LOCAL
        else ""
    )
    if spec.affinity and delivery is Delivery.NODE_PORT:
        more += (
            "; where it connects by itself, all its clients are one to a node: sessionAffinity sends them to one pod"
        )
    where = (
        "the node's port"
        if delivery is Delivery.NODE_PORT
        else "the address itself, which the node takes for the Service"
    )
    return got(Path.LOAD_BALANCER, f"which delivers to {where}{more}", _KEP)


def _kept_address(proxy: ServiceProxy, ingress: LoadBalancerIngress) -> Outcome:
    mode, verdict = ingress.ip_mode, supportmatrix.ip_mode(proxy)
    if verdict.honours is Honours.YES:
        reason = f"packets for the address arrive at a node that with ipMode {mode} does not know it; VIP is right here"
        return Outcome(Client.OUTSIDE, Path.BROKEN, reason, verdict.source)
    if verdict.honours is Honours.NO:
        reason = f"only because {proxy.name} ignores ipMode {mode}; VIP is right here"
        return Outcome(Client.OUTSIDE, Path.LOAD_BALANCER, reason, verdict.source)
    return Outcome(Client.OUTSIDE, Path.UNKNOWN, f"whether a node takes the packets: {verdict.reason}", verdict.source)


def _inside(proxy: ServiceProxy, ingress: LoadBalancerIngress, spec: Spec) -> Outcome:
    if ingress.ip is None:
        reason = "only a host name is published, which no service proxy resolves"
        return Outcome(Client.POD, Path.LOAD_BALANCER, reason, _PROXIER)
    if proxy.kind is Kind.UNKNOWN:
        return Outcome(Client.POD, Path.UNKNOWN, proxy.reason, "")
    if proxy.kind is Kind.NONE:
        return Outcome(Client.POD, Path.LOAD_BALANCER, "nothing on the nodes knows the address", _HERE)
    verdict = supportmatrix.ip_mode(proxy)
    if verdict.honours is not Honours.NEVER_BOUND and _is_vip(ingress):
        return _short_cut(proxy, spec, verdict)
    path, reason = {
        Honours.NEVER_BOUND: (Path.LOAD_BALANCER, verdict.reason),
        Honours.YES: (Path.LOAD_BALANCER, f"ipMode {ingress.ip_mode} keeps the address off the nodes"),
        Honours.NO: (Path.SHORT_CUT, f"ipMode {ingress.ip_mode} is published and ignored: {verdict.reason}"),
        Honours.UNKNOWN: (Path.UNKNOWN, verdict.reason),
    }[verdict.honours]
    return Outcome(Client.POD, path, reason, verdict.source)


def _short_cut(proxy: ServiceProxy, spec: Spec, verdict: Verdict) -> Outcome:
    if proxy.kind is not Kind.KUBE_PROXY and verdict.honours is Honours.UNKNOWN:
        reason = f"VIP lets the node take the address; that {proxy.kind} does so is not known here"
        return Outcome(Client.POD, Path.UNKNOWN, reason, verdict.source)
    reason = "ipMode VIP: the node takes the address for the Service and the load balancer is bypassed"
    if spec.source_ranges and proxy.kind is Kind.KUBE_PROXY:
        reason += "; kube-proxy lets in no client, inside either, that loadBalancerSourceRanges do not name"
    return Outcome(Client.POD, Path.SHORT_CUT, reason, _PROXIER if proxy.kind is Kind.KUBE_PROXY else verdict.source)


# ---- policy Local, where the node takes the address


def _local(proxy: ServiceProxy, inside: Outcome) -> tuple[Outcome, ...]:
    """The rows that one becomes: by whether the client's own node has a pod of the Service."""

    def row(where: Endpoints | None, path: Path, reason: str) -> Outcome:
        return dataclasses.replace(inside, path=path, reason=reason, endpoints=where)

    if proxy.kind is not Kind.KUBE_PROXY:
        reason = f"{inside.reason}; what policy Local does to clients inside is not known here of {proxy.kind}"
        return (
            row(Endpoints.HERE, Path.SHORT_CUT, inside.reason),
            row(Endpoints.ELSEWHERE, Path.UNKNOWN, reason),
        )
    if proxy.mode is Mode.IPVS:
        elsewhere = row(Endpoints.ELSEWHERE, *_ipvs_elsewhere(inside))
        return row(
            Endpoints.HERE, inside.path, f"{inside.reason}; with IPVS and policy Local, to a pod on the same node"
        ), elsewhere
    if inside.client is Client.NODE and proxy.mode not in (Mode.IPTABLES, Mode.NFTABLES):
        reason = f"{inside.reason}; in mode ipvs, and the mode is not known, there is no answer"
        return row(Endpoints.HERE, inside.path, inside.reason), row(Endpoints.ELSEWHERE, Path.UNKNOWN, reason)
    if inside.client is Client.POD and proxy.settings.get(DETECT_LOCAL) == NO_DETECTOR:
        blind = (
            "kube-proxy was not told which addresses are pods' (clusterCIDR), so that a pod is a client outside to it"
        )
        return (
            row(Endpoints.HERE, inside.path, f"{inside.reason}; to a pod on the same node: {blind}"),
            row(Endpoints.ELSEWHERE, Path.BROKEN, f"policy Local, no pod on the node: {blind}, and is dropped"),
        )
    return (row(None, inside.path, f"{inside.reason}; policy Local does not bind clients inside the cluster"),)


def _ipvs_elsewhere(inside: Outcome) -> tuple[Path, str]:
    if inside.client is Client.POD:
        return (
            inside.path,
            f"{inside.reason}; with IPVS and policy Local, to pods on other nodes where the own one has none",
        )
    return Path.BROKEN, (
        "with IPVS and policy Local nothing is masqueraded: the client's source is the load balancer's own address, which is on every "
        "node, so a pod on another node answers to that node; unless the network plug-in masquerades what goes to pods there"
    )


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
