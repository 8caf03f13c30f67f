"""A backend whose cloud is a dictionary: what is measured with it is the controller alone, as with the peer's scripted cloud."""

import ipaddress
from collections.abc import Sequence

from ccm_lb.backends.base import BackendConfig, BackendContext, LoadBalancerBackend
from ccm_lb.objects import IPMode, LoadBalancerIngress, LoadBalancerStatus, Node, Service


class InstantCloud(LoadBalancerBackend[BackendConfig]):
    def __init__(self, context: BackendContext[BackendConfig]) -> None:
        super().__init__(context)
        self._statuses: dict[str, LoadBalancerStatus] = {}

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        return self._statuses.get(service.uid)

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        address = str(ipaddress.ip_address("10.0.0.0") + len(self._statuses) + 1)
        status = LoadBalancerStatus(ingress=(LoadBalancerIngress(ip=address, ip_mode=IPMode.PROXY),))
        return self._statuses.setdefault(service.uid, status)

    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        pass

    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        self._statuses.pop(service.uid, None)
