"""Which operation a Service needs now: a decision, made from state alone."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Hashable

from ccm_lb.controller import predicates
from ccm_lb.controller.predicates import Scope
from ccm_lb.kube import patches
from ccm_lb.objects import LoadBalancerStatus, Service


class Operation(enum.Enum):
    NOTHING = "nothing"
    ENSURE = "ensure"
    RESTORE = "restore"
    UPDATE_NODES = "update"
    CLEANUP = "cleanup"


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


class Ours(enum.StrEnum):
    """What of a Service is this controller's to write."""

    FINALIZER = "finalizer"
    STATUS = "status"


def undone(service: Service, synced: Synced | None) -> frozenset[Ours]:
    """What another one took off or changed since the last success."""
    if synced is None:
        return frozenset()
    found = set() if service.has_finalizer else {Ours.FINALIZER}
    if synced.status is not None and synced.status != patches.comparable(service.status.load_balancer):
        found.add(Ours.STATUS)
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
    left so for now.
    """
    if predicates.needs_cleanup(service, scope):
        return Operation.CLEANUP
    if service.deleting or not predicates.wants_load_balancer(service, scope):
        return Operation.NOTHING
    if synced is None or synced.inputs != predicates.load_balancer_inputs(service):
        return Operation.ENSURE
    if restoring and undone(service, synced):
        return Operation.RESTORE
    if synced.nodes is not nodes and synced.nodes != nodes:  # most often it is one object, and large
        return Operation.UPDATE_NODES
    return Operation.NOTHING
