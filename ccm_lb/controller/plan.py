"""Which operation a Service needs now: a decision, made from state alone."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Hashable

from ccm_lb import annotations as ccm_annotations
from ccm_lb.controller import conditions, predicates
from ccm_lb.controller.conditions import Condition
from ccm_lb.controller.predicates import Scope
from ccm_lb.kube import patches
from ccm_lb.objects import LoadBalancerStatus, Service


class Operation(enum.Enum):
    NOTHING = "nothing"
    ENSURE = "ensure"
    RESTORE = "restore"
    UPDATE_NODES = "update"
    VERIFY = "verify"  # the cloud may have something else than was written there
    CLEANUP = "cleanup"
    PAUSE = "pause"


@dataclasses.dataclass(frozen=True)
class Synced:
    """
    What the last successful sync of a Service was made from, and the status that then
    stood in the Service, as patches.comparable has it (None: it is somebody else's to publish).
    """

    inputs: Hashable
    nodes: frozenset[Hashable]
    status: LoadBalancerStatus | None
    draining: bool = False  # whether its nodes are with those that are about to go
    conditions: frozenset[Condition] | None = None  # as conditions.said had them then; None: not to be looked after


class Ours(enum.StrEnum):
    """What of a Service is this controller's to write."""

    FINALIZER = "finalizer"
    STATUS = "status"
    CONDITIONS = "conditions"


def undone(service: Service, synced: Synced | None) -> frozenset[Ours]:
    """What another one took off or changed since the last success."""
    if synced is None:
        return frozenset()
    found = set() if service.has_finalizer else {Ours.FINALIZER}
    if synced.status is not None and synced.status != patches.comparable(service.status.load_balancer):
        found.add(Ours.STATUS)
    if synced.conditions is not None and synced.conditions != conditions.said(service):
        found.add(Ours.CONDITIONS)
    return frozenset(found)


def decide(
    service: Service,
    nodes: frozenset[Hashable],
    synced: Synced | None,
    scope: Scope,
    *,
    restoring: bool = True,
) -> Operation:
    """
    What to do for `service`, when the eligible nodes are `nodes` (see predicates.node_set) and `synced` is the last success, if any.

    A Service under deletion is never ensured: the API server refuses new finalizers on it, and a load balancer made then is one that
    nobody will remove. What another one undid is put back as it was, without the cloud, which has no part in that; not `restoring`: it is
    left so for now. Of a paused Service only the condition is written that says so, and a wish that cannot be read holds off what cannot be
    undone.
    """
    if predicates.is_paused(service):
        return Operation.PAUSE if _is_to_say_so(service, scope) else Operation.NOTHING
    if predicates.needs_cleanup(service, scope):
        return Operation.CLEANUP
    if service.deleting or not predicates.wants_load_balancer(service, scope):
        return Operation.NOTHING
    if synced is None or synced.inputs != predicates.load_balancer_inputs(service):
        return Operation.ENSURE
    if restoring and undone(service, synced):
        return Operation.RESTORE
    # Most often it is one object, and large.
    same = synced.nodes is nodes or synced.nodes == nodes
    return Operation.NOTHING if same else Operation.UPDATE_NODES


def _is_to_say_so(service: Service, scope: Scope) -> bool:
    """Whether a paused Service, which would be served or cleaned up otherwise, does not say yet that it is paused."""
    ours = predicates.in_scope(service, scope) and (service.has_finalizer or service.spec.type == "LoadBalancer")
    return ours and conditions.paused(service, ccm_annotations.PAUSED) not in conditions.said(service)
