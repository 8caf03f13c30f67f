"""The data plane of all load balancers: opens and closes listeners so that they match the routes."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fakecloud.dataplane.listeners import Candidates, Counters, Forwarding, Limits, PortListener
from fakecloud.dataplane.sockets import BindError, listen
from fakecloud.health.monitor import Monitor
from fakecloud.health.probes import Probe
from fakecloud.models.loadbalancers import Listener, ListenerStatus, LoadBalancerStatus, TargetHealth
from fakecloud.networks import AddressSet
from fakecloud.routes import Destination, Route

Endpoint = tuple[str, int]


class ListenError(Exception):
    """A listener's port can't be had; `index` is the listener's place in the route."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


@dataclass
class _Running:
    """A load balancer as it runs now."""

    route: Route
    listeners: dict[Endpoint, PortListener] = field(default_factory=dict)
    errors: Mapping[Endpoint, str] = field(default_factory=dict)
    probes: frozenset[Probe] = frozenset()


@dataclass(frozen=True)
class Staged:
    """The sockets that a route needs beyond those that are open, bound and not yet served."""

    route: Route
    sockets: Mapping[Endpoint, socket.socket]
    errors: Mapping[Endpoint, str]

    def discard(self) -> None:
        for listening in self.sockets.values():
            listening.close()


class Plane:
    """What is staged can be discarded; what is activated serves traffic until it is removed."""

    def __init__(self, target_networks: AddressSet, limits: Limits) -> None:
        self._target_networks = target_networks
        self._limits = limits
        self._running: dict[str, _Running] = {}
        self._monitor = Monitor(self.refusal)
        self._own: set[Endpoint] = set()
        # Asked for every connection and probe; there are as many as there are target addresses.
        self._allowed: dict[str, bool] = {}

    def refusal(self, address: str, port: int) -> str | None:
        """Why no connection may be made there, or None."""
        allowed = self._allowed.get(address)
        if allowed is None:
            allowed = self._allowed[address] = address in self._target_networks
        if not allowed:
            return f"{address} is outside the target networks"
        if (address, port) in self._own:
            return f"{address}:{port} is a load balancer's own listener, traffic would go round in circles"
        return None

    def stage(self, route: Route, *, tolerate: bool = False) -> Staged:
        """
        Bind what is missing, so that a port that can't be had is known before anything is promised.

        With `tolerate`, and for ports that failed before, the failure is kept for the status instead. Raises ListenError.
        """
        running = self._running.get(route.load_balancer_id, _Running(route))
        sockets: dict[Endpoint, socket.socket] = {}
        errors: dict[Endpoint, str] = {}
        for address in route.addresses:
            for index, listener in enumerate(route.listeners):
                endpoint = (address, listener.port)
                if endpoint in running.listeners:
                    continue
                try:
                    sockets[endpoint] = listen(address, listener.port)
                except BindError as error:
                    if not tolerate and endpoint not in running.errors:
                        Staged(route, sockets, errors).discard()
                        raise ListenError(index, str(error)) from error
                    errors[endpoint] = str(error)
        return Staged(route, sockets, errors)

    async def activate(self, staged: Staged) -> None:
        """Serve the route; connections of listeners that stay are not touched."""
        route = staged.route
        running = self._running.setdefault(route.load_balancer_id, _Running(route))
        probes = frozenset(_probes(route))
        self._monitor.want(probes)
        self._monitor.unwant(running.probes)
        running.route, running.probes, running.errors = route, probes, staged.errors
        wanted = {(address, listener.port): listener for address in route.addresses for listener in route.listeners}
        for endpoint in running.listeners.keys() - wanted.keys():
            self._close(running, endpoint)
        for endpoint, listener in wanted.items():
            forwarding = Forwarding(self._candidates(route, listener), route.sources)
            if endpoint in running.listeners:
                running.listeners[endpoint].forwarding = forwarding
            elif endpoint in staged.sockets:
                opened = PortListener(forwarding, self._limits, self.refusal)
                await opened.open(staged.sockets[endpoint])
                running.listeners[endpoint] = opened
                self._own.add(endpoint)

    def remove(self, load_balancer_id: str) -> None:
        """Close its listeners and connections; one that does not run is fine."""
        running = self._running.pop(load_balancer_id, None)
        if running is not None:
            self._monitor.unwant(running.probes)
            for endpoint in list(running.listeners):
                self._close(running, endpoint)

    def failing(self) -> Sequence[str]:
        """The ids of load balancers with a listener that could not be opened."""
        return [load_balancer_id for load_balancer_id, running in self._running.items() if running.errors]

    def status(self, route: Route) -> LoadBalancerStatus:
        """Health of the targets and counters of the listeners."""
        running = self._running.get(route.load_balancer_id, _Running(route))
        ports = dict.fromkeys(listener.target_port for listener in route.listeners)
        return LoadBalancerStatus(
            targets=tuple(self._health(route, to, port) for to in route.destinations for port in ports),
            listeners=tuple(
                _listener_status(running, listener.port, address)
                for address in route.addresses
                for listener in route.listeners
            ),
        )

    async def close(self) -> None:
        """Cut everything; returns when the sockets are closed."""
        listeners = [listener for running in self._running.values() for listener in running.listeners.values()]
        for load_balancer_id in list(self._running):
            self.remove(load_balancer_id)
        await self._monitor.close()
        # What was aborted is closed in the loop's next iterations.
        while any(listener.active_connections for listener in listeners):  # noqa: ASYNC110 - two or three turns
            await asyncio.sleep(0)

    def _close(self, running: _Running, endpoint: Endpoint) -> None:
        running.listeners.pop(endpoint).close()
        self._own.discard(endpoint)

    def _candidates(self, route: Route, listener: Listener) -> Callable[[], Candidates]:
        port = listener.target_port
        known = [
            ((to.address, port), self._monitor.watched(_probe(route, to.address, port)))
            for to in route.destinations
            if to.address is not None
        ]
        return lambda: [(endpoint, watched.verdict.usable) for endpoint, watched in known]

    def _health(self, route: Route, to: Destination, port: int) -> TargetHealth:
        if to.address is None:
            return TargetHealth(target=to.label, address=None, port=port, healthy=False, reason=to.reason)
        verdict = self._monitor.watched(_probe(route, to.address, port)).verdict
        return TargetHealth(
            target=to.label, address=to.address, port=port, healthy=verdict.healthy, reason=verdict.reason
        )


def _probe(route: Route, address: str, target_port: int) -> Probe:
    return Probe(address, route.health_check.port or target_port, route.health_check)


def _probes(route: Route) -> set[Probe]:
    return {
        _probe(route, to.address, listener.target_port)
        for to in route.destinations
        if to.address is not None
        for listener in route.listeners
    }


def _listener_status(running: _Running, port: int, address: str) -> ListenerStatus:
    listener = running.listeners.get((address, port))
    counters = listener.counters() if listener is not None else Counters()
    return ListenerStatus(
        protocol="TCP",
        port=port,
        open=listener is not None,
        error=running.errors.get((address, port)),
        connections=counters.connections,
        active_connections=listener.active_connections if listener is not None else 0,
        bytes_in=counters.bytes_in,
        bytes_out=counters.bytes_out,
    )
