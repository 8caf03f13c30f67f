"""A cloud in memory, and the backend for it: what the controller's own tests run on, and the smallest backend there is."""

import contextlib
import dataclasses
import ipaddress
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from pydantic import ConfigDict, Field

from ccm_lb import annotations, ipmode, portstatus
from ccm_lb.annotations import ProxyProtocol
from ccm_lb.backends import changes
from ccm_lb.backends.abilities import FAMILIES, PROTOCOLS, Abilities
from ccm_lb.backends.actual import ActualLoadBalancer, Settings, Value
from ccm_lb.backends.base import BackendConfig, LoadBalancerBackend, Reads
from ccm_lb.errors import CCMError, PortsError, RetryAfterError, TerminalError
from ccm_lb.ipmode import Delivery, Inputs, PortTraffic, Traffic
from ccm_lb.objects import IPMode, LoadBalancerIngress, LoadBalancerStatus, Node, PortStatus, Service, ServicePort
from ccm_lb.testing.script import Script

__all__ = ["Call", "MemoryBackend", "MemoryCloud", "MemoryConfig", "MemoryLoadBalancer", "Mutation", "Owner"]

Owner = tuple[str, str]
"""Cluster id and UID of the Service."""


@dataclasses.dataclass(frozen=True)
class MemoryLoadBalancer:
    """
    One load balancer; `listeners` are (protocol, port, node port), `targets` the names of nodes.

    `addresses` are by family, `proxy_protocol` by port where there is any, `fronts` the nodes' addresses that each family sends to.
    """

    name: str
    addresses: Mapping[str, str]
    listeners: tuple[tuple[str, int, int], ...]
    targets: tuple[str, ...]
    proxy_protocol: Mapping[int, str] = dataclasses.field(default_factory=dict)
    fronts: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    source_ranges: tuple[str, ...] = ()
    service: str = ""  # namespace and name


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a backend: `verb` is get, ensure, update, delete or release; read (of one) or list (a page, without a UID)."""

    verb: str
    uid: str
    nodes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Mutation:
    """
    One change of the cloud: `verb` is CREATE, UPDATE, DELETE, ADOPT or RELEASE.

    The load balancer is as it was afterwards, or before its end.
    """

    verb: str
    uid: str
    load_balancer: MemoryLoadBalancer


class MemoryCloud:
    """
    Load balancers by owner; it outlives the backends that talk to it, as clouds do.

    `script` says what calls do out of the ordinary, by the verbs of `Call`. `calls` and `mutations` are the journal, `overlaps` the UIDs
    of Services for which two calls were under way at a time. `on_call` is told of each call before its script is played.
    """

    def __init__(self, *, pool: str = "203.0.113.0/24", ip_mode: IPMode | None = IPMode.PROXY) -> None:
        self.ip_mode = ip_mode
        self.traffic = Traffic(Delivery.REWRITTEN, enforces_source_ranges=True)  # ports and default are filled in
        self.proxy_protocol = ProxyProtocol.NONE  # where no annotation says otherwise
        self.abilities = Abilities(
            protocols=PROTOCOLS,
            mixed_protocols=True,
            families=FAMILIES,
            dual_stack=True,
            source_ranges=True,
            proxy_protocols=frozenset({ProxyProtocol.V1, ProxyProtocol.V2}),
            requested_address=True,
            adoption=True,
            keeping=True,
            batch_node_update=True,
        )
        self.protocols = PROTOCOLS  # that it takes, whatever the backend says of it
        self.needs_ipv4 = False  # every load balancer gets an IPv4 address, whether asked for or not
        self.page = 100  # load balancers in one answer
        self.keeps_nothing = False  # what is written is accepted, and undone
        self.load_balancers: dict[Owner, MemoryLoadBalancer] = {}
        self.released: dict[str, MemoryLoadBalancer] = {}  # nobody's, by the id that they have as their owner's
        self.script = Script()
        self.calls: list[Call] = []
        self.mutations: list[Mutation] = []
        self.overlaps: list[str] = []
        self.on_call: Callable[[Call], None] = lambda _: None
        self._under_way: set[str] = set()
        # Never given out twice, so that a test sees a stale address for what it is.
        self._pools = {
            "IPv4": ipaddress.ip_network(pool).hosts(),
            "IPv6": ipaddress.ip_network("2001:db8:f::/64").hosts(),
        }

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
        if verb in ("read", "list"):  # which change nothing, and wait for nobody
            async with self.script.play(verb):
                yield
            return
        if uid in self._under_way:
            self.overlaps.append(uid)
        self._under_way.add(uid)
        try:
            async with self.script.play(verb):
                yield
        finally:
            self._under_way.discard(uid)

    def put(self, owner: Owner, wanted: MemoryLoadBalancer) -> MemoryLoadBalancer:
        """Store what is wanted, if that changes anything; each family that has no address yet gets it here."""
        existing = self.load_balancers.get(owner)
        families = [*wanted.addresses, *(["IPv4"] if self.needs_ipv4 and "IPv4" not in wanted.addresses else [])]
        known = existing.addresses if existing else wanted.addresses
        given = {family: known.get(family) or str(next(self._pools[family])) for family in families}
        wanted = dataclasses.replace(wanted, addresses=given)
        if existing == wanted:
            return existing
        changes.note()
        if self.keeps_nothing:
            raise RetryAfterError("the cloud still works on it", 2.0)
        self.load_balancers[owner] = wanted
        self.mutations.append(Mutation("CREATE" if existing is None else "UPDATE", owner[1], wanted))
        return wanted

    def release(self, owner: Owner) -> None:
        """What `owner` has is nobody's from now on."""
        existing = self.load_balancers.pop(owner, None)
        if existing is not None:
            self.released[load_balancer_id(owner)] = existing
            self.mutations.append(Mutation("RELEASE", owner[1], existing))

    def adopt(self, owner: Owner, name: str) -> None:
        """What is nobody's is `owner`'s from now on. Raises TerminalError: it is another one's, or not there."""
        if name in map(load_balancer_id, self.load_balancers):
            raise TerminalError(f'annotation {annotations.ADOPT} is "{name}", which is another owner\'s')
        if name not in self.released:
            raise TerminalError(f'annotation {annotations.ADOPT} is "{name}", which is not there')
        changes.note()
        self.load_balancers[owner] = self.released.pop(name)
        self.mutations.append(Mutation("ADOPT", owner[1], self.load_balancers[owner]))

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
    def abilities(self) -> Abilities:
        return self.cloud.abilities

    reads = Reads.ALL

    @property
    def cloud(self) -> MemoryCloud:
        return self.context.config.cloud

    def traffic(self, service: Service) -> Traffic:
        options = annotations.parse(service)
        headers = {port: options.proxy_protocol_on(port, self.cloud.proxy_protocol) for port in service.spec.ports}
        ports = tuple(
            PortTraffic(port.port, port.protocol, "" if header is ProxyProtocol.NONE else header)
            for port, header in headers.items()
        )
        return dataclasses.replace(self.cloud.traffic, ports=ports, default=self.cloud.ip_mode)

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        async with self.cloud.call("get", service.uid):
            found = self.cloud.load_balancers.get(self._owner(service))
            # Looked up whatever the annotations say: what is wrong in them must not stop a clean-up.
            return (
                None if found is None else _published(found.addresses.values(), self.cloud.ip_mode or IPMode.PROXY, ())
            )

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        traffic = self.traffic(service)
        async with self.cloud.call("ensure", service.uid, nodes):
            existing = self.cloud.load_balancers.get(self._owner(service))
            named = self.options(service).adopt
            if named is not None and existing is None:
                self.cloud.adopt(self._owner(service), named)
            _, refused = self._ports(service, existing is None)
            stored = self.cloud.put(self._owner(service), await self._wanted(service, nodes))
            return _published(stored.addresses.values(), ipmode.decide(Inputs(traffic)).mode, refused)

    async def _wanted(self, service: Service, nodes: Sequence[Node]) -> MemoryLoadBalancer:
        served, _ = self._ports(service, new=False)
        families = service.spec.ip_families or ("IPv4",)
        return MemoryLoadBalancer(
            name=await self.get_load_balancer_name(service),
            addresses=dict.fromkeys(families, "") | {_family(one): one for one in self.options(service).addresses},
            listeners=tuple(sorted((port.protocol, port.port, port.node_port) for port in served)),
            targets=tuple(node.name for node in nodes),
            proxy_protocol={
                port.port: port.proxy_protocol for port in self.traffic(service).ports if port.proxy_protocol
            },
            fronts=_fronts(families, nodes),
            source_ranges=annotations.source_ranges(service),
            service=str(service.key),
        )

    # ---- what is there, beside what is wanted

    async def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        ours = [owner for owner in self.cloud.load_balancers if owner[0] == self.context.cluster_id]
        if uid is not None:
            ours = [owner for owner in ours if owner[1] == uid]
        for first in range(0, max(len(ours), 1), self.cloud.page):
            async with self.cloud.call("list" if uid is None else "read", uid or ""):
                page = [
                    (owner, self.cloud.load_balancers[owner])
                    for owner in ours[first : first + self.cloud.page]
                    if owner in self.cloud.load_balancers
                ]
            yield [_actual(owner, one) for owner, one in page]

    async def desired_settings(self, service: Service, nodes: Sequence[Node]) -> Settings:
        return _settings(await self._wanted(service, nodes))

    def status_of(self, service: Service, actual: ActualLoadBalancer) -> LoadBalancerStatus:
        _, refused = self._ports(service, new=False)
        return _published(actual.addresses, ipmode.decide(Inputs(self.traffic(service))).mode, refused)

    # ---- nodes, and the end

    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        async with self.cloud.call("update", service.uid, nodes):
            existing = self.cloud.load_balancers.get(self._owner(service))
            if existing is None:
                raise CCMError("the load balancer is not there")
            targets, fronts = tuple(node.name for node in nodes), _fronts(existing.fronts, nodes)
            self.cloud.put(self._owner(service), dataclasses.replace(existing, targets=targets, fronts=fronts))

    async def release_load_balancer(self, service: Service) -> None:
        async with self.cloud.call("release", service.uid):
            self.cloud.release(self._owner(service))

    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        async with self.cloud.call("delete", service.uid):
            self.cloud.remove(self._owner(service))

    def _ports(self, service: Service, new: bool) -> tuple[list[ServicePort], tuple[PortStatus, ...]]:  # noqa: FBT001
        """The ports to serve, and those that cannot be; PortsError where no port is left, or a new one would start incomplete."""
        errors = {port: self._error(port) for port in service.spec.ports}
        refused = tuple(
            PortStatus(port=port.port, protocol=port.protocol, error=error) for port, error in errors.items() if error
        )
        served = [port for port, error in errors.items() if not error]
        if refused and (not served or (new and any(one.error != portstatus.NO_NODE_PORT for one in refused))):
            raise PortsError(f"the ports {portstatus.words(refused)} cannot be served", refused)
        return served, refused

    def _error(self, port: ServicePort) -> str | None:
        if port.protocol not in self.cloud.protocols:
            return portstatus.PROTOCOL_NOT_SUPPORTED
        return None if port.node_port else portstatus.NO_NODE_PORT

    def _owner(self, service: Service) -> Owner:
        return self.context.cluster_id, service.uid


def load_balancer_id(owner: Owner) -> str:
    """What the cloud calls the load balancer of this owner."""
    return f"{owner[0]}/{owner[1]}"


def _family(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _fronts(families: Iterable[str], nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    return {family: tuple(filter(None, (node.internal_ip(family) for node in nodes))) for family in families}


def _actual(owner: Owner, one: MemoryLoadBalancer) -> ActualLoadBalancer:
    addresses = tuple(one.addresses.values())
    return ActualLoadBalancer(load_balancer_id(owner), owner[1], addresses, _settings(one), one.service)


def _settings(one: MemoryLoadBalancer) -> Settings:
    found: dict[str, Value] = {
        "name": one.name,
        "families": tuple(one.fronts),
        "listeners": tuple(f"{protocol}/{port}" for protocol, port, _ in one.listeners),
        "targets": one.targets,
        "sourceRanges": one.source_ranges,
        **{f"fronts.{family}": addresses for family, addresses in one.fronts.items()},
    }
    for protocol, port, node_port in one.listeners:
        found[f"listeners[{protocol}/{port}].nodePort"] = node_port
        found[f"listeners[{protocol}/{port}].proxyProtocol"] = one.proxy_protocol.get(port, "none")
    return found


def _published(addresses: Iterable[str], ip_mode: IPMode | str, refused: tuple[PortStatus, ...]) -> LoadBalancerStatus:
    return LoadBalancerStatus(
        ingress=tuple(LoadBalancerIngress(ip=ip, ip_mode=ip_mode, ports=refused) for ip in addresses)
    )
