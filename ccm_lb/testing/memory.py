"""A cloud in memory, and the backend for it: what the controller's own tests run on, and the smallest backend there is."""

import contextlib
import dataclasses
import ipaddress
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from pydantic import ConfigDict, Field

from ccm_lb import annotations
from ccm_lb.backends.base import BackendConfig, LoadBalancerBackend
from ccm_lb.errors import CCMError
from ccm_lb.objects import IPMode, LoadBalancerIngress, LoadBalancerStatus, Node, Service
from ccm_lb.testing.script import Script

Owner = tuple[str, str]
"""Cluster id and UID of the Service."""


@dataclasses.dataclass(frozen=True)
class MemoryLoadBalancer:
    """One load balancer; `listeners` are (protocol, port, node port), `targets` the names of nodes."""

    name: str
    address: str
    listeners: tuple[tuple[str, int, int], ...]
    targets: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a backend: `verb` is get, ensure, update or delete."""

    verb: str
    uid: str
    nodes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One change of the cloud: `verb` is CREATE, UPDATE or DELETE; the load balancer is as it was afterwards, or before its end."""

    verb: str
    uid: str
    load_balancer: MemoryLoadBalancer


class MemoryCloud:
    """
    Load balancers by owner; it outlives the backends that talk to it, as clouds do.

    `script` says what calls do out of the ordinary, by the verbs of `Call`. `calls` and `mutations` are the journal, `overlaps` the UIDs
    of Services for which two calls were under way at a time. `on_call` is told of each call before its script is played.
    """

    def __init__(self, *, pool: str = "203.0.113.0/24", ip_mode: IPMode = IPMode.PROXY) -> None:
        self.ip_mode = ip_mode
        self.load_balancers: dict[Owner, MemoryLoadBalancer] = {}
        self.script = Script()
        self.calls: list[Call] = []
        self.mutations: list[Mutation] = []
        self.overlaps: list[str] = []
        self.on_call: Callable[[Call], None] = lambda _: None
        self._under_way: set[str] = set()
        # Never given out twice, so that a test sees a stale address for what it is.
        self._addresses = ipaddress.ip_network(pool).hosts()

    def verbs(self) -> list[str]:
        """The verbs of all calls so far."""
        return [call.verb for call in self.calls]

    def changes(self) -> list[str]:
        """The verbs of all changes so far."""
        return [mutation.verb for mutation in self.mutations]

    @contextlib.asynccontextmanager
    async def call(self, verb: str, uid: str, nodes: Iterable[Node] = ()) -> AsyncIterator[None]:
        """Around the work of one call: writes it down, and does what the script says."""
        call = Call(verb, uid, tuple(node.name for node in nodes))
        self.calls.append(call)
        self.on_call(call)
        if uid in self._under_way:
            self.overlaps.append(uid)
        self._under_way.add(uid)
        try:
            async with self.script.play(verb):
                yield
        finally:
            self._under_way.discard(uid)

    def put(self, owner: Owner, wanted: MemoryLoadBalancer) -> MemoryLoadBalancer:
        """Store what is wanted, if that changes anything; a new one gets its address here."""
        existing = self.load_balancers.get(owner)
        if existing == wanted:
            return existing
        if existing is None:
            wanted = dataclasses.replace(wanted, address=str(next(self._addresses)))
        self.load_balancers[owner] = wanted
        self.mutations.append(Mutation("CREATE" if existing is None else "UPDATE", owner[1], wanted))
        return wanted

    def remove(self, owner: Owner) -> None:
        existing = self.load_balancers.pop(owner, None)
        if existing is not None:
            self.mutations.append(Mutation("DELETE", owner[1], existing))


class MemoryConfig(BackendConfig):
    """Which cloud; a new one by default."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    cloud: MemoryCloud = Field(default_factory=MemoryCloud)


class MemoryBackend(LoadBalancerBackend[MemoryConfig]):
    """Load balancers of a `MemoryCloud`."""

    config_model = MemoryConfig

    @property
    def cloud(self) -> MemoryCloud:
        return self.context.config.cloud

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        async with self.cloud.call("get", service.uid):
            found = self.cloud.load_balancers.get(self._owner(service))
            # Looked up whatever the annotations say: what is wrong in them must not stop a clean-up.
            return None if found is None else _published(found, self.cloud.ip_mode)

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        ip_mode = annotations.parse(service).ip_mode or self.cloud.ip_mode
        async with self.cloud.call("ensure", service.uid, nodes):
            existing = self.cloud.load_balancers.get(self._owner(service))
            wanted = MemoryLoadBalancer(
                name=existing.name if existing else await self.get_load_balancer_name(service),
                address=existing.address if existing else "",
                listeners=tuple((port.protocol, port.port, port.node_port) for port in service.spec.ports),
                targets=tuple(node.name for node in nodes),
            )
            return _published(self.cloud.put(self._owner(service), wanted), ip_mode)

    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        async with self.cloud.call("update", service.uid, nodes):
            existing = self.cloud.load_balancers.get(self._owner(service))
            if existing is None:
                raise CCMError("the load balancer is not there")
            targets = tuple(node.name for node in nodes)
            self.cloud.put(self._owner(service), dataclasses.replace(existing, targets=targets))

    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        async with self.cloud.call("delete", service.uid):
            self.cloud.remove(self._owner(service))

    def _owner(self, service: Service) -> Owner:
        return self.context.cluster_id, service.uid


def _published(load_balancer: MemoryLoadBalancer, ip_mode: IPMode) -> LoadBalancerStatus:
    return LoadBalancerStatus(ingress=(LoadBalancerIngress(ip=load_balancer.address, ip_mode=ip_mode),))
