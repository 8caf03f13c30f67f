"""
What the running controller makes of the cluster's service proxy: a metric, a hint for the ipMode, Warnings on Services.

Load balancers do not need it. It works beside them, is waited for at the start alone and not for long, and what goes wrong in it ends here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn, Protocol

from ccm_lb.dataplane.clients import ipmodehint
from ccm_lb.dataplane.clients.mismatch import ServiceAdvice
from ccm_lb.dataplane.model import Kind, ServiceProxy, unknown
from ccm_lb.ipmode import ServiceProxyHint
from ccm_lb.objects import Node, Service

log = logging.getLogger(__name__)

PATIENCE = 3.0
"""Seconds that a start waits for the first look: an ipMode that is published before it may be another one after it."""

_AGAIN = 60.0  # seconds after a failure that nobody thought of
_OS = "kubernetes.io/os"


class Detector(Protocol):
    """What `detect.ServiceProxyDetector` offers."""

    async def run(self) -> None: ...


class ServiceProxyFollower:
    """A `detect.Observer`, and a `reconcile.Advice`; `hint` and `versions` are for `publish.Policy`."""

    def __init__(
        self,
        advice: ServiceAdvice,
        leads: Callable[[], bool],
        show: Callable[[ServiceProxy], None],
        nodes: Callable[[], Iterable[Node]],
    ) -> None:
        """`leads`: whether this replica holds the Lease, so that its Warnings are the only ones. `show` is the metric."""
        self._advice, self._leads, self._show, self._nodes = advice, leads, show, nodes
        self._proxy = unknown("the cluster was not looked at yet")
        self._hint = ServiceProxyHint.UNKNOWN

    def __call__(self, proxy: ServiceProxy, previous: ServiceProxy | None) -> None:
        self._proxy, self._hint = proxy, ipmodehint.following(proxy, self._hint)
        self._show(proxy)
        if self._leads():
            self._advice.proxy_changed(proxy, previous)

    def take_over(self) -> None:
        """From now on this replica holds the Lease."""
        self._advice.proxy_changed(self._proxy, None)

    def hint(self) -> ServiceProxyHint:
        return self._hint

    def versions(self) -> Mapping[str, str]:
        """kube-proxy's version by node, as far as its workload says it; it is for Linux, and of all such nodes while none is rolled out."""
        if self._proxy.kind is not Kind.KUBE_PROXY or self._proxy.version is None or self._proxy.rolling:
            return {}
        return {
            one.name: str(self._proxy.version) for one in self._nodes() if one.metadata.labels.get(_OS) != "windows"
        }

    def served(self, service: Service) -> None:
        """The Service publishes what it shows."""
        self._advice.served(service)

    def forget(self, uid: str) -> None:
        """The Service is gone."""
        self._advice.forget(uid)


async def keep(detector: Detector) -> NoReturn:
    """Run the detector until cancelled, again after each failure: nothing here may end the process."""
    while True:
        try:
            await detector.run()
        except Exception:
            log.exception("the look at the service proxy failed and begins anew", extra={"pause": _AGAIN})
        await asyncio.sleep(_AGAIN)
