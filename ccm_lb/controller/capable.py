"""A backend as the core calls it: asked for what its cloud can do, and never for more."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ccm_lb import portstatus
from ccm_lb.annotations import Options
from ccm_lb.backends import abilities as backend_abilities
from ccm_lb.backends.abilities import Abilities
from ccm_lb.backends.actual import ActualLoadBalancer, Settings
from ccm_lb.backends.base import LoadBalancerBackend, Reads
from ccm_lb.errors import PortsError
from ccm_lb.ipmode import Traffic
from ccm_lb.objects import LoadBalancerStatus, Node, PortStatus, Service

LIMITED = "TargetsLimited"
"""Reason of the Warning: the cloud takes fewer nodes than there are."""


class Capable(LoadBalancerBackend[Any]):
    """
    Passes everything on to `inner`, without the ports, families and nodes that `inner.abilities` has not.

    Who uses a Service learns it: a port's error is in the status and by a condition, a family is a TerminalError or is named where its
    address is missing, nodes that are left out are an event, once.
    """

    def __init__(self, inner: LoadBalancerBackend[Any]) -> None:
        super().__init__(inner.context)
        self._inner = inner
        self._told: dict[str, str] = {}  # by UID, of nodes that are left out

    @property
    def abilities(self) -> Abilities:
        return self._inner.abilities

    @property
    def honours(self) -> frozenset[str]:
        return self._inner.honours

    @property
    def reads(self) -> Reads:  # type: ignore[override]  # the same attribute, asked of the inner one
        return self._inner.reads

    async def open(self) -> None:
        await self._inner.open()

    async def close(self) -> None:
        await self._inner.close()

    def options(self, service: Service) -> Options:
        return self._inner.options(service)

    async def get_load_balancer_name(self, service: Service) -> str:
        return await self._inner.get_load_balancer_name(service)

    def traffic(self, service: Service) -> Traffic | None:
        found = self._inner.traffic(backend_abilities.within(service, self.abilities))
        if found is not None and found.enforces_source_ranges is None and self.abilities.source_ranges:
            return dataclasses.replace(found, enforces_source_ranges=True)
        return found

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        return await self._inner.get_load_balancer(service)

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        backend_abilities.check_options(self.options(service), self.abilities)
        served = backend_abilities.within(service, self.abilities)
        refused = backend_abilities.refused_ports(service, self.abilities)
        if refused and not (served.spec.ports and service.status.load_balancer.ingress):
            # A new load balancer starts whole or not at all (KEP-1435).
            raise PortsError(f"the cloud cannot serve the ports {portstatus.words(refused)}", refused)
        return _with(await self._inner.ensure_load_balancer(served, self._chosen(service, nodes)), refused)

    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        served = backend_abilities.within(service, self.abilities)
        await self._inner.update_load_balancer(served, self._chosen(service, nodes))

    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        await self._inner.ensure_load_balancer_deleted(service)
        self._told.pop(service.uid, None)

    async def release_load_balancer(self, service: Service) -> None:
        await self._inner.release_load_balancer(service)
        self._told.pop(service.uid, None)

    def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        return self._inner.read_load_balancers(uid)

    async def desired_settings(self, service: Service, nodes: Sequence[Node]) -> Settings:
        served = backend_abilities.within(service, self.abilities)
        return await self._inner.desired_settings(
            served, backend_abilities.within_limit(service.uid, nodes, self.abilities)
        )

    def status_of(self, service: Service, actual: ActualLoadBalancer) -> LoadBalancerStatus | None:
        found = self._inner.status_of(backend_abilities.within(service, self.abilities), actual)
        return found and _with(found, backend_abilities.refused_ports(service, self.abilities))

    def _chosen(self, service: Service, nodes: Sequence[Node]) -> Sequence[Node]:
        chosen = backend_abilities.within_limit(service.uid, nodes, self.abilities)
        said = (
            ""
            if len(chosen) == len(nodes)
            else (
                f"The cloud takes {len(chosen)} of the {len(nodes)} nodes behind one load balancer: the others get no traffic from it"
            )
        )
        if said and self._told.get(service.uid) != said:
            self.context.events.event(service, "Warning", LIMITED, said)
        self._told[service.uid] = said
        return chosen


def _with(status: LoadBalancerStatus, refused: tuple[PortStatus, ...]) -> LoadBalancerStatus:
    # Other people's code answers; what is no status is complained of where answers are checked.
    if not refused or not isinstance(status, LoadBalancerStatus):
        return status
    return LoadBalancerStatus(
        ingress=tuple(one.model_copy(update={"ports": (*one.ports, *refused)}) for one in status.ingress)
    )
