"""
The questions that decide what is done, asked of objects alone.

The rules are upstream's (k8s.io/cloud-provider, controllers/service/controller.go) unless a comment says why not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterable, Mapping

from ccm_lb import annotations as ccm_annotations
from ccm_lb.objects import EXCLUDE_LABEL, TO_BE_DELETED_TAINT, Node, Service

_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})  # what Go's strconv.ParseBool takes for false

# kubectl rewrites this one whenever anything is applied, labels included; no load balancer depends on it.
_IGNORED_ANNOTATIONS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})


@dataclasses.dataclass(frozen=True)
class Scope:
    """Which Services are this controller's: those of `classes`, and those without a class if `unclassed` (KEP-1959)."""

    classes: frozenset[str] = frozenset()
    unclassed: bool = True


def in_scope(service: Service, scope: Scope) -> bool:
    """Whether the Service's loadBalancerClass is one that this controller serves."""
    if service.spec.load_balancer_class is None:
        return scope.unclassed
    return service.spec.load_balancer_class in scope.classes


def wants_load_balancer(service: Service, scope: Scope) -> bool:
    """Whether the Service asks this controller for a load balancer; one under deletion may still want it and never gets one."""
    return service.spec.type == "LoadBalancer" and in_scope(service, scope)


def needs_cleanup(service: Service, scope: Scope) -> bool:
    """
    Whether our finalizer guards a load balancer that is to go.

    Unlike upstream, a class that is not ours counts as well, so that a Service which changed its class while the controller was
    away is let go instead of hanging on a finalizer that nobody removes. Whether that finalizer is ours at all is asked elsewhere.
    """
    return service.has_finalizer and (service.deleting or not wants_load_balancer(service, scope))


def is_paused(service: Service) -> bool:
    """Whether its user wants nothing to be written for it; a value that cannot be read is no such wish, see `annotations.parse`."""
    return service.metadata.annotations.get(ccm_annotations.PAUSED) == "true"


def may_want_it(service: Service) -> bool:
    """Whether the Service may have a load balancer, for any controller's reasons, or its user asked for it to be kept or left alone."""
    asked = {ccm_annotations.PAUSED, ccm_annotations.KEEP} & service.metadata.annotations.keys()
    return service.spec.type == "LoadBalancer" or service.has_finalizer or bool(asked)


def concerns_us(service: Service, scope: Scope) -> bool:
    """Whether the Service has to be remembered at all."""
    return service.has_finalizer or wants_load_balancer(service, scope)


def is_served(service: Service) -> bool:
    """Whether a load balancer of ours serves the Service, as far as it says itself."""
    return service.has_finalizer and not service.deleting and bool(service.status.load_balancer.ingress)


def load_balancer_inputs(service: Service) -> Hashable:
    """
    Everything of a Service that its load balancer depends on, as one comparable value.

    Upstream's `needsUpdate` list, and also what it leaves out although a cloud can see the difference: the order of ipFamilies, their
    policy, and whether node ports are allocated.
    """
    spec = service.spec
    return (
        service.uid,
        spec.type,
        spec.load_balancer_class,
        spec.load_balancer_source_ranges,
        tuple(port.model_dump_json() for port in spec.ports),
        spec.session_affinity,
        repr(spec.session_affinity_config),
        spec.load_balancer_ip,
        spec.external_ips,
        _relevant_annotations(service.metadata.annotations),
        spec.external_traffic_policy,
        spec.health_check_node_port,
        spec.ip_families,
        spec.ip_family_policy,
        spec.allocate_load_balancer_node_ports,
    )


def _relevant_annotations(annotations: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset((name, value) for name, value in annotations.items() if name not in _IGNORED_ANNOTATIONS)


def node_included(node: Node) -> bool:
    """
    Whether load balancers may send traffic to the node (KEP-3458).

    NotReady and cordoned nodes stay in: the load balancer's health check knows better. Out are nodes under deletion, and those with the
    exclusion label at any value but a false one. What the cluster autoscaler is about to delete is for `about_to_go`.
    """
    if node.metadata.deletion_timestamp is not None:
        return False
    excluded = node.metadata.labels.get(EXCLUDE_LABEL)
    return excluded is None or excluded in _FALSE


def left_out(node: Node, *, draining: bool = False) -> str:
    """Why the node is none of `eligible_nodes`, for its user; empty if it is one."""
    if node.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if not node_included(node):
        return f"its label {EXCLUDE_LABEL} says so"
    if about_to_go(node) and not draining:
        return f"its taint {TO_BE_DELETED_TAINT} says that the cluster autoscaler is about to delete it"
    return ""


def about_to_go(node: Node) -> bool:
    """Whether the cluster autoscaler is about to delete the node: kube-proxy answers 503 to health checks there."""
    return any(taint.key == TO_BE_DELETED_TAINT for taint in node.spec.taints)


def eligible_nodes(nodes: Iterable[Node], *, draining: bool = False) -> tuple[Node, ...]:
    """
    The nodes that get traffic, sorted by name so that equal sets are equal requests.

    With `draining`, those that are about to go as well: for load balancers that ask kube-proxy, which send nothing new there and
    let go on what is. Upstream leaves them in until the next change of any node, and then takes them out.
    """
    found = (node for node in nodes if node_included(node) and (draining or not about_to_go(node)))
    return tuple(sorted(found, key=lambda node: node.name))


def node_identity(node: Node) -> Hashable:
    """What of a node a target is made of; upstream's name and providerID, and the addresses, since a node can get a new one."""
    return (node.name, node.spec.provider_id, node.internal_ips)


def node_set(nodes: Iterable[Node]) -> frozenset[Hashable]:
    """The identity of a set of target nodes, for comparison."""
    return frozenset(node_identity(node) for node in nodes)
