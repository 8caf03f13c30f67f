"""What the cloud has beside what is wanted, Service by Service, and what of it is already known and left so."""

from __future__ import annotations

from typing import Any

from ccm_lb.backends import actual
from ccm_lb.backends.actual import ActualLoadBalancer, Difference
from ccm_lb.backends.base import LoadBalancerBackend, Reads
from ccm_lb.controller.state import ClusterState
from ccm_lb.errors import CCMError
from ccm_lb.objects import LoadBalancerStatus, Service

UNKNOWN = Difference("load balancer", "as it was written", None)
"""Of a backend that does not tell its settings."""


class Comparison:
    """Asks the backend; keeps what the backend leaves as it is although it differs."""

    def __init__(self, backend: LoadBalancerBackend[Any], state: ClusterState) -> None:
        self.backend, self._state = backend, state
        self._accepted: dict[str, frozenset[Difference]] = {}  # by UID
        self._shown: dict[str, ActualLoadBalancer] = {}  # by UID, for the verification after a restart

    async def read(self, service: Service) -> tuple[Difference, ...]:
        """How the load balancer differs by now, which is read for that; nothing while the cloud works on it. Raises as the backend does."""
        if self.backend.reads is Reads.NOTHING:
            found = await self.backend.get_load_balancer(service)
            if found is None:
                return (actual.MISSING,)
            return _addresses(self._published(service), tuple(one.ip or one.hostname or "" for one in found.ingress))
        pages = [page async for page in self.backend.read_load_balancers(service.uid)]
        return await self.differences(service, next((one for page in pages for one in page), None))

    async def differences(self, service: Service, found: ActualLoadBalancer | None) -> tuple[Difference, ...]:
        """How it differs from what the Service was last synced as, but for what was accepted. Raises as the backend's settings do."""
        if found is not None and not found.settled:
            return ()
        synced = self._state.synced(service)
        nodes = self._state.eligible_nodes(draining=synced is not None and synced.draining)
        differing = actual.differences(await self.backend.desired_settings(service, nodes), found)
        if found is not None:
            differing += _addresses(self._published(service), found.addresses)
        if differing and frozenset(differing) == self._accepted.get(service.uid):
            return ()
        return differing

    def accept(self, service: Service, differing: tuple[Difference, ...]) -> None:
        """The backend was asked, and leaves these as they are: the cloud cannot do otherwise."""
        self._accepted[service.uid] = frozenset(differing)

    def forget(self, uid: str) -> None:
        """The load balancer was written, or is gone."""
        self._accepted.pop(uid, None)
        self._shown.pop(uid, None)

    # ---- after a restart

    def show(self, found: ActualLoadBalancer) -> None:
        """The load balancer of a Service that is about to be verified."""
        self._shown[found.owner_uid] = found

    async def answer(self, service: Service) -> LoadBalancerStatus | None:
        """What ensure would answer for the load balancer that was shown, if that is as it is to be; None: the cloud has to be asked."""
        found = self._shown.pop(service.uid, None)
        if found is None or not found.settled:
            return None
        traffic = self.backend.traffic(service)
        nodes = self._state.eligible_nodes(draining=traffic is not None and traffic.probes_ask_kube_proxy)
        try:
            differing = actual.differences(await self.backend.desired_settings(service, nodes), found)
        except CCMError:
            return None  # ensure says so itself
        return None if differing else self.backend.status_of(service, found)

    def _published(self, service: Service) -> tuple[str, ...]:
        synced = self._state.synced(service)
        ingress = synced.status.ingress if synced is not None and synced.status is not None else ()
        return tuple(one.ip for one in ingress if one.ip)


def _addresses(published: tuple[str, ...], there: tuple[str, ...]) -> tuple[Difference, ...]:
    lost = bool(set(published) - set(there))
    return (Difference("addresses", published, there),) if lost else ()
