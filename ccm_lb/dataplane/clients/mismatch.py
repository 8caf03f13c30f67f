"""Warns the owners of Services whose published ipMode this cluster's service proxy ignores or contradicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ccm_lb.backends.base import EventRecorder
from ccm_lb.dataplane.clients import effect
from ccm_lb.dataplane.model import ServiceProxy, unknown
from ccm_lb.objects import Service

REASON = "IPModeMismatch"


class ServiceAdvice:
    """
    Posts one Warning for each Service and message; a Service is heard of again only when what there is to say of it changes.

    Never writes a status. `proxy_changed` is a `detect.Observer`; `served` is to be called when a Service's status was written or seen.
    """

    def __init__(self, events: EventRecorder, services: Callable[[], Iterable[Service]]) -> None:
        self._events, self._services = events, services
        self._proxy = unknown("the cluster was not looked at yet")
        self._said: dict[str, frozenset[str]] = {}  # by UID

    def proxy_changed(self, proxy: ServiceProxy, _previous: ServiceProxy | None) -> None:
        self._proxy = proxy
        services = list(self._services())
        alive = {one.uid for one in services}
        self._said = {uid: said for uid, said in self._said.items() if uid in alive}
        for service in services:
            self.served(service)

    def served(self, service: Service) -> None:
        """Look at the addresses that the Service publishes now."""
        ingress = service.status.load_balancer.ingress
        messages = frozenset(filter(None, (effect.mismatch(self._proxy, one) for one in ingress)))
        for message in sorted(messages - self._said.get(service.uid, frozenset())):
            self._events.event(service, "Warning", REASON, message)
        self._said[service.uid] = messages

    def forget(self, uid: str) -> None:
        """The Service is gone."""
        self._said.pop(uid, None)
