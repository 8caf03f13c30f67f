"""
What a Service's user is told: upstream's event reasons and messages, to the letter, because people and tools look for them.

WaitingForLoadBalancer is ours: upstream is silent, or warns, while a cloud that accepted a request is still at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ccm_lb.backends.base import EventRecorder
from ccm_lb.controller.endings import Ending
from ccm_lb.controller.messages import TYPES, Notice
from ccm_lb.objects import Node, Service

STANDING = frozenset(
    {
        *TYPES,
        "WaitingForLoadBalancer",
        "SyncLoadBalancerFailed",
        "UpdateLoadBalancerFailed",
        "DeleteLoadBalancerFailed",
        "UnAvailableLoadBalancer",
    }
) - {"AddressChanged", "LoadBalancerDrifted"}
"""Reasons of events that tell how things stand: a new process, which finds them so, has nothing new to say."""

NAMED_NODES = 20  # upstream's limit of node names in a message


def words(error: BaseException) -> str:
    """What an exception says, its kind if it says nothing."""
    return str(error) or type(error).__name__


class ServiceEvents:
    """One method for each thing that happens to a load balancer."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def ensuring(self, service: Service) -> None:
        self._events.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")

    def ensured(self, service: Service) -> None:
        self._events.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")

    def deleting(self, service: Service) -> None:
        self._events.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")

    def ended(self, service: Service, end: Ending) -> None:
        reason = "DeletedLoadBalancer" if end is Ending.DELETE else "LoadBalancerKept"
        self._events.event(service, "Normal", reason, end.value)

    def paused(self, service: Service, message: str) -> None:
        self._events.event(service, "Normal", "LoadBalancerPaused", message)

    def waiting(self, service: Service, error: BaseException) -> None:
        message = f"Waiting for the load balancer: {words(error)}"
        self._events.event(service, "Normal", "WaitingForLoadBalancer", message)

    def sync_failed(self, service: Service, error: BaseException) -> None:
        self._events.event(service, "Warning", "SyncLoadBalancerFailed", f"Error syncing load balancer: {words(error)}")

    def delete_failed(self, service: Service, error: BaseException) -> None:
        self._events.event(
            service, "Warning", "DeleteLoadBalancerFailed", f"Error deleting load balancer: {words(error)}"
        )

    def tell(self, service: Service, news: Iterable[Notice]) -> None:
        for one in news:
            self._events.event(service, TYPES[one.reason], one.reason, one.message)

    def nodes_updated(self, service: Service, nodes: Sequence[Node]) -> None:
        if nodes:
            self._events.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        else:
            self.no_nodes(service)

    def no_nodes(self, service: Service) -> None:
        message = "There are no available nodes for LoadBalancer"
        self._events.event(service, "Warning", "UnAvailableLoadBalancer", message)

    def update_failed(self, service: Service, nodes: Sequence[Node], error: BaseException) -> None:
        names = " ".join(node.name for node in nodes[:NAMED_NODES])
        message = (
            f"Error updating load balancer with new hosts [{names}] "
            f"[node names limited, total number of nodes: {len(nodes)}], error: {words(error)}"
        )
        self._events.event(service, "Warning", "UpdateLoadBalancerFailed", message)
