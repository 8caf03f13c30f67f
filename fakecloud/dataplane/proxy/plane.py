"""The data plane of all load balancers: opens and closes listeners so that they match the routes."""

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fakecloud.dataplane.algorithms import Candidate
from fakecloud.dataplane.balancer import Choices, Endpoint
from fakecloud.dataplane.delivery import ListenError, Place, Spot, Staged
from fakecloud.dataplane.faulteffects import next_expiry, port_fault, targets_down
from fakecloud.dataplane.flowlog import FlowLog
from fakecloud.dataplane.proxy.addresses import AddressError, Addresses
from fakecloud.dataplane.proxy.connecttimeouts import ConnectTimeouts
from fakecloud.dataplane.proxy.context import Limits, ProxyContext
from fakecloud.dataplane.proxy.datagrams import DatagramListener
from fakecloud.dataplane.proxy.listeneroptions import ListenerOptions
from fakecloud.dataplane.proxy.listeners import PortListener
from fakecloud.dataplane.proxy.poller import Poller
from fakecloud.dataplane.proxy.sockets import BindError, bind_datagrams, exhausted, listen
from fakecloud.dataplane.proxy.wakeups import Wakeups
from fakecloud.dataplane.status import listener_status, target_statuses
from fakecloud.faults.rules import Armed, Strike
from fakecloud.health.monitor import Monitor
from fakecloud.health.probes import Probe
from fakecloud.health.required import probe_of, probes_of
from fakecloud.models.listeners import Listener
from fakecloud.models.views import LoadBalancerStatus
from fakecloud.state.networks import AddressSet
from fakecloud.state.routes import Destination, Route

# Of the loop, for what was cut to be gone; two or three are enough.
_TURNS = 10
# File descriptors: the last listener leaves as many.
_OF_A_CONNECTION = 2


@dataclass
class Running:
    """A load balancer as it runs now."""

    route: Route
    listeners: dict[Spot, PortListener | DatagramListener] = field(default_factory=dict)
    errors: Mapping[Spot, str] = field(default_factory=dict)
    probes: frozenset[Probe] = frozenset()


class Plane:
    """What is staged can be discarded; what is activated serves traffic until it is removed."""

    def __init__(self, target_networks: AddressSet, limits: Limits, addresses: Addresses, log: FlowLog) -> None:
        self._target_networks = target_networks
        self._addresses = addresses
        loop = asyncio.get_running_loop()
        self._context = ProxyContext(
            limits, self.refusal, log, ConnectTimeouts(limits.connect_timeout), Poller(), Wakeups(), loop.time
        )
        self._running: dict[str, Running] = {}
        self._monitor = Monitor(self.refusal, at_once=limits.probes)
        self._own: set[Endpoint] = set()
        # Asked for every connection and probe; there are as many as there are target addresses.
        self._allowed: dict[str, bool] = {}
        self._faults: Sequence[Armed] = ()
        self._strike: Strike = lambda _: ()
        self._down: frozenset[str] = frozenset()
        self._expiry: asyncio.TimerHandle | None = None

    def refusal(self, address: str, port: int) -> str | None:
        """Why no connection may be made there, or None."""
        allowed = self._allowed.get(address)
        if allowed is None:
            allowed = self._allowed[address] = address in self._target_networks
        if not allowed:
            return f"{address} is outside the target networks"
        if (address, port) in self._own:
            return f"{address}:{port} is a load balancer's own listener, traffic would go round in circles"
        if address in self._down:
            return "down by the order of a fault"
        return None

    def stage(self, route: Route, *, tolerate: bool = False) -> Staged:
        """
        Bind what is missing, so that a port that can't be had is known before anything is promised.

        With `tolerate`, and for ports that failed before, the failure is kept for the status instead. Raises ListenError.
        """
        running = self._running.get(route.load_balancer_id, Running(route))
        sockets: dict[Spot, socket.socket] = {}
        errors: dict[Spot, str] = {}
        claimed = [address for address in route.addresses if self._addresses.missing(address)]
        staged = Staged(route, sockets, errors, lambda: self._addresses.release(claimed))
        for address in route.addresses:
            for index, listener in enumerate(route.listeners):
                spot = (listener.protocol, address, listener.port)
                if spot in running.listeners:
                    continue
                try:
                    if self._context.listeners + len(sockets) + _OF_A_CONNECTION >= self._context.limits.descriptors:
                        raise BindError(exhausted(address, listener.port))
                    self._addresses.claim(address)
                    open_socket = listen if listener.protocol == "TCP" else bind_datagrams
                    sockets[spot] = open_socket(address, listener.port)
                except (BindError, AddressError) as error:
                    if not tolerate and spot not in running.errors:
                        staged.discard()
                        raise ListenError(index, str(error)) from error
                    errors[spot] = str(error)
        return staged

    async def activate(self, staged: Staged) -> None:
        """Serve the route; connections of listeners that stay are not touched."""
        route = staged.route
        running = self._running.setdefault(route.load_balancer_id, Running(route))
        probes = frozenset(probes_of(route))
        self._monitor.want(probes)
        self._monitor.unwant(running.probes)
        left = set(running.route.addresses) - set(route.addresses)
        running.route, running.probes, running.errors = route, probes, staged.errors
        wanted = {
            (listener.protocol, address, listener.port): listener
            for address in route.addresses
            for listener in route.listeners
        }
        closed = [self._close(running, spot) for spot in running.listeners.keys() - wanted.keys()]
        for spot, listener in wanted.items():
            options = self._options(route, listener)
            if spot in running.listeners:
                running.listeners[spot].follow(options)
            elif spot in staged.sockets:
                await self._open(running, spot, options, staged.sockets[spot])
        self._take_down(self._all_down())
        if left:
            await _resets_sent(closed)
            self._release(left)

    def remove(self, load_balancer_id: str) -> None:
        """Close its listeners and connections; one that does not run is fine."""
        running = self._running.pop(load_balancer_id, None)
        if running is not None:
            self._monitor.unwant(running.probes)
            for spot in list(running.listeners):
                self._close(running, spot)
            self._release(set(running.route.addresses))

    def follow(self, faults: Sequence[Armed], strike: Strike) -> None:
        """Do what faults order for traffic, until they change or one ends by itself."""
        self._faults, self._strike = faults, strike
        now = time.monotonic()
        for running in self._running.values():
            for listener in running.listeners.values():
                listener.suffer(port_fault(faults, strike, listener.place, now))
        self._take_down(self._all_down())
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if (pause := next_expiry(faults, now)) is not None:
            self._expiry = asyncio.get_running_loop().call_later(pause + 0.001, self.follow, faults, strike)

    def failing(self) -> Sequence[str]:
        """The ids of load balancers with a listener that could not be opened."""
        return [load_balancer_id for load_balancer_id, running in self._running.items() if running.errors]

    def running(self) -> Mapping[str, Running]:
        """All load balancers as they run, for counting."""
        return self._running

    def status(self, route: Route) -> LoadBalancerStatus:
        """Health of the targets and counters of the listeners."""
        running = self._running.get(route.load_balancer_id, Running(route))
        return LoadBalancerStatus(
            targets=target_statuses(route, running.listeners.values(), self._monitor),
            listeners=tuple(
                listener_status(
                    (listener.protocol, address, listener.port),
                    running.listeners.get((listener.protocol, address, listener.port)),
                    running.errors.get((listener.protocol, address, listener.port)),
                )
                for address in route.addresses
                for listener in route.listeners
            ),
        )

    async def close(self) -> None:
        """Cut everything; returns when the sockets are closed."""
        if self._expiry is not None:
            self._expiry.cancel()
        for load_balancer_id in list(self._running):
            self.remove(load_balancer_id)
        self._context.connect_timeouts.close()
        self._context.poller.close()
        self._context.wakeups.close()
        await self._monitor.close()

    async def _open(self, running: Running, spot: Spot, options: ListenerOptions, bound: socket.socket) -> None:
        protocol, address, port = spot
        kind = PortListener if protocol == "TCP" else DatagramListener
        opened = kind(Place(running.route.load_balancer_id, address, port), options, self._context)
        await opened.open(bound)
        running.listeners[spot] = opened
        self._context.opened(1)
        self._own.add((address, port))
        opened.suffer(port_fault(self._faults, self._strike, opened.place, time.monotonic()))

    def _close(self, running: Running, spot: Spot) -> PortListener | DatagramListener:
        closed = running.listeners.pop(spot)
        closed.close()
        self._context.opened(-1)
        protocol, address, port = spot
        if ("UDP" if protocol == "TCP" else "TCP", address, port) not in running.listeners:
            self._own.discard((address, port))
        return closed

    def _release(self, addresses: set[str]) -> None:
        """Give those back that no load balancer has."""
        used = {address for running in self._running.values() for address in running.route.addresses}
        self._addresses.release(addresses - used)

    def _options(self, route: Route, listener: Listener) -> ListenerOptions:
        known = [
            (to, _endpoint(to, listener), self._monitor.watched(probe) if probe is not None else None)
            for to in route.destinations
            if to.address is not None
            for probe in [probe_of(route, to, listener)]
        ]

        def candidates() -> Sequence[Candidate[Endpoint]]:
            return [
                Candidate(endpoint, to.weight, watched is None or watched.verdict.usable)
                for to, endpoint, watched in known
            ]

        return ListenerOptions(
            choices=Choices(
                candidates, lambda: self._monitor.changes, route.algorithm, route.fail_open, route.affinity_seconds
            ),
            sources=route.sources,
            proxy_protocol=listener.proxy_protocol,
            idle_seconds=listener.idle_timeout_seconds,
            staying=frozenset(endpoint for to, endpoint, _ in known if to.weight > 0),
            drain_seconds=route.drain_seconds,
            connection_limit=route.connection_limit,
        )

    def _all_down(self) -> frozenset[str]:
        if not self._faults:
            return frozenset()
        routes = [running.route for running in self._running.values()]
        return targets_down(self._faults, [to for route in routes for to in route.destinations], time.monotonic())

    def _take_down(self, down: frozenset[str]) -> None:
        fallen, self._down = down - self._down, down
        for running in self._running.values():
            for listener in running.listeners.values():
                for address in fallen:
                    listener.reset_target(address)


async def _resets_sent(closed: Sequence[PortListener | DatagramListener]) -> None:
    """What was cut is reset in the loop's next turns; an address that is gone by then can't tell its clients any more."""
    for _ in range(_TURNS):
        if not any(listener.active_connections for listener in closed):
            return
        await asyncio.sleep(0)


def _endpoint(to: Destination, listener: Listener) -> Endpoint:
    return to.address or "", to.port or listener.target_port
