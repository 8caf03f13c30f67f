"""What the controller decides for a Service before it calls the cloud, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ccm_lb import annotations as ccm_annotations
from ccm_lb.controller import predicates
from ccm_lb.controller.predicates import Scope
from ccm_lb.objects import CLEANUP_FINALIZER, Service


class Decision(NamedTuple):
    """One question, its answer, and why."""

    question: str
    answer: str
    reason: str


def decisions(service: Service, scope: Scope) -> Iterable[Decision]:
    """In the order in which they are made."""
    yield _responsible(service, scope)
    yield _load_balancer(service, scope)
    if service.has_finalizer:
        yield Decision("finalizer", "there", f"{CLEANUP_FINALIZER} keeps the Service until its load balancer is gone")
    elif predicates.wants_load_balancer(service, scope):
        yield Decision("finalizer", "missing", "it is put on before the first call to the cloud")
    else:
        yield Decision("finalizer", "none", "nothing has to be removed with the Service")


def _responsible(service: Service, scope: Scope) -> Decision:
    name = service.spec.load_balancer_class
    if name is None:
        word = "is" if scope.unclassed else "is not"
        return _yes(
            "this controller",
            scope.unclassed,
            f"the Service has no loadBalancerClass, and --handle-unclassed {word} set",
        )
    known = name in scope.classes
    return _yes(
        "this controller",
        known,
        f"its loadBalancerClass {name} is {'' if known else 'not '}one of --load-balancer-class",
    )


def _load_balancer(service: Service, scope: Scope) -> Decision:
    if predicates.is_paused(service):
        return Decision("load balancer", "left alone", f"annotation {ccm_annotations.PAUSED} is true")
    if service.deleting and not service.has_finalizer:
        return Decision(
            "load balancer", "none", "the Service is being deleted, and nothing of it is left to be removed"
        )
    if service.deleting:
        return Decision("load balancer", "to be removed", "the Service is being deleted")
    if predicates.wants_load_balancer(service, scope):
        return Decision("load balancer", "wanted", "the Service is of type LoadBalancer and this controller's")
    reason = (
        "another controller serves its class"
        if service.spec.type == "LoadBalancer"
        else f"the Service is of type {service.spec.type}"
    )
    return Decision("load balancer", "to be removed" if service.has_finalizer else "none", reason)


def _yes(question: str, answer: bool, reason: str) -> Decision:  # noqa: FBT001 - it is the answer
    return Decision(question, "yes" if answer else "no", reason)
