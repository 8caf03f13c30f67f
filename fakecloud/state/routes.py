"""What the data plane has to do for a load balancer, as a plain value computed from the state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fakecloud.models.listeners import Algorithm, HealthCheck, Listener, Target
from fakecloud.models.loadbalancers import LoadBalancer
from fakecloud.state.networks import AddressSet
from fakecloud.state.records import Kind, Record, State


@dataclass(frozen=True)
class Destination:
    """A target with the address that it has now; without one, `reason` says why it can't be used."""

    label: str
    address: str | None
    reason: str = ""
    # Its other ones, which serve where the traffic must arrive in their family.
    others: tuple[str, ...] = ()
    # In place of the listener's targetPort.
    port: int | None = None
    # 0 gets no new connections.
    weight: int = 1


@dataclass(frozen=True)
class Route:
    """One load balancer: where it listens, who may connect, and where traffic goes. Durations in seconds."""

    load_balancer_id: str
    addresses: tuple[str, ...]
    listeners: tuple[Listener, ...]
    destinations: tuple[Destination, ...]
    health_check: HealthCheck
    # None is everyone.
    sources: AddressSet | None
    algorithm: Algorithm = "round-robin"
    affinity_seconds: float | None = None
    fail_open: bool = True
    drain_seconds: float | None = None
    connection_limit: int | None = None

    def toward(self, address: str) -> "Route":
        """The route with each target's address of the same family: packets that keep their destination can't change family."""
        return replace(self, destinations=tuple(_in_family_of(address, to) for to in self.destinations))

    def health_check_of(self, listener: Listener) -> HealthCheck:
        return listener.health_check or self.health_check


def route_of(state: State, load_balancer: LoadBalancer) -> Route:
    spec = load_balancer.spec
    return Route(
        load_balancer_id=load_balancer.id,
        addresses=tuple(assigned.address for assigned in load_balancer.addresses),
        listeners=spec.listeners,
        destinations=tuple(_destination(state, target, spec.families[0]) for target in spec.targets),
        health_check=spec.health_check or HealthCheck(),
        sources=AddressSet.of(spec.source_ranges) if spec.source_ranges else None,
        algorithm=spec.algorithm,
        affinity_seconds=spec.session_affinity.timeout_seconds if spec.session_affinity is not None else None,
        fail_open=spec.when_all_unhealthy == "open",
        drain_seconds=spec.drain_timeout_seconds,
        connection_limit=spec.connection_limit,
    )


def nodes(route: Route, *, staying: bool = False) -> frozenset[str]:
    """The addresses of all targets, in all families that are served; `staying` leaves out those that drain."""
    aimed = [to for address in route.addresses for to in route.toward(address).destinations]
    return frozenset(to.address for to in aimed if to.address is not None and (to.weight > 0 or not staying))


def shown(route: Route, aimed: Sequence[Route]) -> Route:
    """The route with targets as traffic meets them, which is the first of `aimed` in which they have an address."""
    found = zip(*(one.destinations for one in aimed), strict=True)
    return replace(
        route, destinations=tuple(next((to for to in ways if to.address is not None), ways[0]) for ways in found)
    )


def affected(state: State, records: tuple[Record, ...]) -> tuple[LoadBalancer, ...]:
    """The load balancers whose route differs after these rows changed; those that are gone are not among them."""
    ids = {record.key for record in records if record.kind is Kind.LOAD_BALANCER}
    servers = {record.key for record in records if record.kind is Kind.SERVER}
    if servers:
        ids |= {lb.id for lb in state.load_balancers.values() if any(to.server in servers for to in lb.spec.targets)}
    return tuple(state.load_balancers[name] for name in sorted(ids) if name in state.load_balancers)


def _destination(state: State, target: Target, family: str) -> Destination:
    weight = 0 if target.drain else 1 if target.weight is None else target.weight
    if target.address is not None:
        return Destination(target.label, target.address, port=target.port, weight=weight)
    server = state.servers.get(target.label)
    if server is None:
        return Destination(target.label, None, f"server {target.label} does not exist any more")
    # The proxy opens a connection of its own, so the families on its two sides need not agree. But a Service of one family has its
    # node port in that family alone: the load balancer's first one goes first.
    address, *others = sorted(server.addresses, key=lambda address: (":" in address) != (family == "IPv6"))
    return Destination(target.label, address, others=tuple(others), port=target.port, weight=weight)


def _in_family_of(address: str, to: Destination) -> Destination:
    if to.address is None:
        return to
    found = next((own for own in (to.address, *to.others) if (":" in own) == (":" in address)), None)
    if found is None:
        return replace(to, address=None, reason=f"{to.label} has no {'IPv6' if ':' in address else 'IPv4'} address")
    return replace(to, address=found)
