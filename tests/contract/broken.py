"""Backends that each break one promise of the provider's contract."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.actual import ActualLoadBalancer, Settings
from ccm_lb.backends.base import BackendContext
from ccm_lb.errors import CCMError, RetryAfterError
from ccm_lb.objects import LoadBalancerIngress, LoadBalancerStatus, Node, Service
from ccm_lb.testing import builders
from ccm_lb.testing.memory import MemoryBackend, MemoryConfig, Owner


class NoIpMode(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        status = await super().ensure_load_balancer(service, nodes)
        return LoadBalancerStatus(ingress=tuple(one.model_copy(update={"ip_mode": None}) for one in status.ingress))


class IpModeOfAHostname(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        status = await super().ensure_load_balancer(service, nodes)
        update = {"ip": None, "hostname": "lb.example.com"}
        return LoadBalancerStatus(ingress=tuple(one.model_copy(update=update) for one in status.ingress))


class FirstNodeOnly(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        return await super().ensure_load_balancer(service, nodes[:1])


class FirstPortOfAnother(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        return await super().ensure_load_balancer(builders.changed(service, builders.port(1)), nodes)


class NothingWithoutNodes(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        return await super().ensure_load_balancer(service, nodes) if nodes else LoadBalancerStatus()


class AnswersTheStatus(MemoryBackend):
    """Takes what stands in the Service for what the cloud has."""

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        return service.status.load_balancer if service.status.load_balancer.ingress else None


class AnswersSomethingElse(MemoryBackend):
    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        found = await super().get_load_balancer(service)
        return found and LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="203.0.113.99"),))


class MakesItAnew(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        self.cloud.remove(self._owner(service))
        return await super().ensure_load_balancer(service, nodes)


class RemembersByItself(MemoryBackend):
    """Knows a load balancer by having got the answer to its create."""

    def __init__(self, context: BackendContext[MemoryConfig]) -> None:
        super().__init__(context)
        self.attempts = 0

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        self.attempts += 1
        status = await super().ensure_load_balancer(service, nodes)
        self.attempts = 0
        return status

    def _owner(self, service: Service) -> Owner:
        return f"{self.context.cluster_id}{'#' * self.attempts}", service.uid


class WritesBesideTheTransport(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        self.cloud.script.forget()
        return await super().ensure_load_balancer(service, nodes)


class FindsByName(MemoryBackend):
    def _owner(self, service: Service) -> Owner:
        return self.context.cluster_id, service.metadata.name


class FindsByAnnotations(MemoryBackend):
    def _owner(self, service: Service) -> Owner:
        return self.context.cluster_id, service.metadata.annotations.get("example.com/name", service.uid)


class OneAtATime(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        self.current = service
        await asyncio.sleep(0)
        return await super().ensure_load_balancer(self.current, nodes)


class ForgetsTheCluster(MemoryBackend):
    def _owner(self, service: Service) -> Owner:
        return "conformance-b", service.uid


class DeletesByUid(MemoryBackend):
    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        for owner in [owner for owner in self.cloud.load_balancers if owner[1] == service.uid]:
            self.cloud.remove(owner)


class CreateOnly(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        return await self.get_load_balancer(service) or await super().ensure_load_balancer(service, nodes)


class NewAddressForNewPorts(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        existing = self.cloud.load_balancers.get(self._owner(service))
        if existing and existing.listeners[0][1] != service.spec.ports[0].port:
            self.cloud.remove(self._owner(service))
        return await super().ensure_load_balancer(service, nodes)


class AddsNodes(MemoryBackend):
    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        await super().update_load_balancer(service, nodes)
        existing = self.cloud.load_balancers[self._owner(service)]
        self.cloud.put(self._owner(service), dataclasses.replace(existing, targets=("n1", "n2", "n3", "n4")))


class UpdatesListenersToo(MemoryBackend):
    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        await super().update_load_balancer(service, nodes)
        existing = self.cloud.load_balancers[self._owner(service)]
        self.cloud.put(self._owner(service), dataclasses.replace(existing, listeners=()))


class UpdateMakesOne(MemoryBackend):
    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        await self.ensure_load_balancer(service, nodes)


class UpdateMakesOneAndFails(UpdateMakesOne):
    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        await super().update_load_balancer(service, nodes)
        raise CCMError("it was not there")


class UpdateWantsToBeRepeated(MemoryBackend):
    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        raise RetryAfterError("it is not there", 1)


class ReadsTheFieldOnly(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        without = builders.annotated(ccm_annotations.SOURCE_RANGES, None)
        return await super().ensure_load_balancer(builders.changed(service, without), nodes)


class DeletesNothing(MemoryBackend):
    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        async with self.cloud.call("delete", service.uid):
            pass


class DeletesEverything(MemoryBackend):
    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        for owner in list(self.cloud.load_balancers):
            self.cloud.remove(owner)


class DeletesOnce(MemoryBackend):
    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        if self._owner(service) not in self.cloud.load_balancers:
            raise CCMError("it is not there")
        await super().ensure_load_balancer_deleted(service)


class GetRaises(MemoryBackend):
    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        return await super().get_load_balancer(service) or LoadBalancerStatus()


class ParsesBeforeItDeletes(MemoryBackend):
    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        ccm_annotations.parse(service)
        await super().ensure_load_balancer_deleted(service)


class DeletesLoadBalancersOnly(MemoryBackend):
    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        if service.spec.type == "LoadBalancer":
            await super().ensure_load_balancer_deleted(service)


class WritesIntoTheService(MemoryBackend):
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        cast("dict[str, Any]", service.raw["metadata"])["annotations"] = {"example.com/id": "1"}
        return await super().ensure_load_balancer(service, nodes)


class WantsAnotherName(MemoryBackend):
    async def desired_settings(self, service: Service, nodes: Sequence[Node]) -> Settings:
        return {**await super().desired_settings(service, nodes), "name": service.metadata.name}


class AnswersWithoutPorts(MemoryBackend):
    def status_of(self, service: Service, actual: ActualLoadBalancer) -> LoadBalancerStatus:
        return LoadBalancerStatus()


class TellsNoTargets(MemoryBackend):
    async def desired_settings(self, service: Service, nodes: Sequence[Node]) -> Settings:
        settings = await super().desired_settings(service, nodes)
        return {name: value for name, value in settings.items() if name != "targets" and "fronts" not in name}


class ReadsAllInsteadOfOne(MemoryBackend):
    def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        return super().read_load_balancers()


class ReadsEveryCluster(MemoryBackend):
    async def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        for cluster, owner in list(self.cloud.load_balancers):
            if uid in (None, owner):
                yield [ActualLoadBalancer(f"{cluster}/{owner}", owner, (), {})]


class ReadsTheFirstPageOnly(MemoryBackend):
    async def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        self.cloud.page = 1
        async for page in super().read_load_balancers(uid):
            yield page
            return


class TellsItsToken(MemoryBackend):
    async def desired_settings(self, service: Service, nodes: Sequence[Node]) -> Settings:
        self.context.secrets.add("a-token-of-the-cloud")
        return {**await super().desired_settings(service, nodes), "token": "a-token-of-the-cloud"}


class ReadsByEnsuring(MemoryBackend):
    async def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        for owner, one in self.cloud.load_balancers.items():
            self.cloud.load_balancers[owner] = dataclasses.replace(one, targets=())
        async for page in super().read_load_balancers(uid):
            yield page
