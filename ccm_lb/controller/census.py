"""How many Services are served, how many wait, and for how long: what metrics show and alerts are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ccm_lb.controller import predicates
from ccm_lb.controller.predicates import Scope
from ccm_lb.objects import Key, Service


class Count(NamedTuple):
    """
    Services of this controller by what became of them; each is counted once.

    `served` publish an address, `pending` none yet, `failing` are those whose last attempt failed, whether they publish one or not, and
    `deleting` wait for their load balancer to go. `longest_wait` is in seconds, of all that are pending, failing or deleting.
    """

    served: int = 0
    pending: int = 0
    failing: int = 0
    deleting: int = 0
    longest_wait: float = 0.0


class Census:
    """Taken again and again; it remembers since when each Service waits, and forgets those that do not."""

    def __init__(self, scope: Scope, monotonic: Callable[[], float]) -> None:
        self._scope = scope
        self._monotonic = monotonic
        self._waiting_since: dict[str, float] = {}

    def take(self, services: Iterable[Service], failures: Callable[[Key], int]) -> Count:
        """`failures` says how often in a row the work on a Service has failed."""
        now, count = self._monotonic(), {"served": 0, "pending": 0, "failing": 0, "deleting": 0}
        waiting: dict[str, float] = {}
        for service in services:
            what = self._what(service, failures(service.key))
            if what is None:
                continue
            count[what] += 1
            if what != "served":
                waiting[service.uid] = self._waiting_since.get(service.uid, now)
        self._waiting_since = waiting
        return Count(**count, longest_wait=now - min(waiting.values(), default=now))

    def _what(self, service: Service, failures: int) -> str | None:
        if predicates.needs_cleanup(service, self._scope):
            return "deleting"
        if not predicates.wants_load_balancer(service, self._scope) or service.deleting:
            return None
        if failures:
            return "failing"
        return "served" if service.status.load_balancer.ingress else "pending"
