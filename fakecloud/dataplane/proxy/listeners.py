"""One open TCP port of a load balancer: accepts clients, finds each a target, and knows its own connections."""

import asyncio
import errno
import socket
from collections.abc import Mapping

from fakecloud.dataplane.balancer import Balancer, Endpoint
from fakecloud.dataplane.counters import Counters
from fakecloud.dataplane.delivery import Place
from fakecloud.dataplane.faulteffects import NO_FAULT, PortFault, PortState
from fakecloud.dataplane.proxy.connections import Connection
from fakecloud.dataplane.proxy.context import ProxyContext
from fakecloud.dataplane.proxy.listeneroptions import ListenerOptions
from fakecloud.dataplane.proxy.portfaults import Plug, refuse, reopen
from fakecloud.models.flows import Ending

# A connection is found idle at most a quarter of its timeout late.
_IDLE_CHECKS = 4
_ACCEPTED_AT_ONCE = 64
# The machine has no file descriptor or memory for another client: accepting again at once would fail again, and spin.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_SECONDS = 0.1


class PortListener:
    """Owns one listening socket and every connection that came through it."""

    def __init__(self, place: Place, options: ListenerOptions, context: ProxyContext) -> None:
        self.place = place
        self.context = context
        self.options = options
        self._loop = asyncio.get_running_loop()
        self.balancer = Balancer(options.choices, context.clock, self._load)
        self._totals = Counters()
        self._by_target: dict[Endpoint, Counters] = {}
        self._connections: set[Connection] = set()
        self._fault = NO_FAULT
        self._listening: socket.socket | None = None
        self._idle_check: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None
        # While a fault keeps the address silent: what fills the queue of the listening socket.
        self._plug: Plug | None = None

    async def open(self, listening: socket.socket) -> None:
        """Accept from the socket; it belongs to the listener from now on."""
        self._listening = listening
        self._watch(listening)
        self._check_idle()

    def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._listening is not None:
            self._stop_accepting(self._listening)
            self._listening.close()
            self._listening = None
        if self._idle_check is not None:
            self._idle_check.cancel()
        for connection in list(self._connections):
            connection.end("cut")

    def follow(self, options: ListenerOptions) -> None:
        """Serve new connections as told; those to targets that are gone or drain end after the drain timeout."""
        self.options = options
        self.balancer.follow(options.choices)
        if options.drain_seconds is not None:
            self._loop.call_later(options.drain_seconds, self._end_drained)
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._check_idle()

    def suffer(self, fault: PortFault) -> None:
        """Do what faults order from now on; connections that exist go quiet while the address is silent."""
        before, self._fault = self._fault, fault
        if before.state is fault.state:
            return
        self._set_state(fault.state)
        for connection in list(self._connections):
            connection.quiet(quiet=fault.state is PortState.SILENT)

    @property
    def active_connections(self) -> int:
        return len(self._connections)

    def counters(self) -> Counters:
        """What went through so far, connections that are still open included."""
        total = Counters(self._totals.connections, 0, self._totals.bytes_in, self._totals.bytes_out)
        for connection in self._connections:
            total.add(connection.counters())
        return total

    def counters_by_target(self) -> Mapping[Endpoint, Counters]:
        totals = {
            target: Counters(ended.connections, 0, ended.bytes_in, ended.bytes_out)
            for target, ended in self._by_target.items()
        }
        for connection in self._connections:
            if connection.endpoint is not None:
                totals.setdefault(connection.endpoint, Counters()).add(connection.counters())
        return totals

    def ended(self, connection: Connection, ending: Ending) -> None:
        """Both sides are closed."""
        self._connections.discard(connection)
        self.context.connections -= 1
        counters = connection.counters()
        counters.active = 0
        self._totals.add(counters)
        if connection.endpoint is not None:
            ended = self._by_target.get(connection.endpoint)
            if ended is None:
                ended = self._by_target[connection.endpoint] = Counters()
            ended.add(counters)
        self.context.log.add(connection.ended(self.place, ending, counters))

    def _accept(self, listening: socket.socket) -> None:
        # Each needs a descriptor for its target as well: for whom there is none waits, like for whom accept() has none.
        room = self.context.most_connections - self.context.connections
        if room <= 0:
            self._wait_for_descriptors(listening)
        for _ in range(min(room, _ACCEPTED_AT_ONCE)):
            try:
                client, endpoint = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._wait_for_descriptors(listening)
                    return
                # This one client is gone.
                continue
            client.setblocking(False)
            self._accepted(Connection(self, client, endpoint[:2]))

    def _wait_for_descriptors(self, listening: socket.socket) -> None:
        self._stop_accepting(listening)
        self._pause = self._loop.call_later(_PAUSE_SECONDS, self._watch, listening)

    def _accepted(self, connection: Connection) -> None:
        """A client is there; find it a target unless it may not have one."""
        self._connections.add(connection)
        self.context.connections += 1
        refused = self._refusal(connection)
        if refused is not None:
            connection.end(refused)
            return
        effects = self._fault.strike() if self._fault.strike is not None else ()
        connection.begin(self.balancer.targets(connection.client_endpoint[0]), effects)

    def _refusal(self, connection: Connection) -> Ending | None:
        sources, limit = self.options.sources, self.options.connection_limit
        if sources is not None and connection.client_endpoint[0] not in sources:
            return "forbidden-source"
        if limit is not None and len(self._connections) > limit:
            return "limit"
        return "limit" if self.context.connections > self.context.limits.connections else None

    def reset_target(self, address: str) -> None:
        """The target is gone: its connections are reset."""
        for connection in list(self._connections):
            if connection.endpoint is not None and connection.endpoint[0] == address:
                connection.end("fault")

    def _load(self, endpoint: Endpoint) -> int:
        return sum(connection.endpoint == endpoint for connection in self._connections)

    def _end_drained(self) -> None:
        if self.options.drain_seconds is None:
            return
        for connection in list(self._connections):
            if connection.endpoint is not None and connection.endpoint not in self.options.staying:
                connection.end("drained")

    def _check_idle(self) -> None:
        idle = self.options.idle_seconds
        self._idle_check = None
        if idle is not None:
            now = self.context.clock()
            for connection in list(self._connections):
                if connection.idle_since(now) >= idle:
                    connection.end("idle")
            self._idle_check = self._loop.call_later(idle / _IDLE_CHECKS, self._check_idle)

    def _set_state(self, state: PortState) -> None:
        if self._listening is None:
            return
        self._stop_accepting(self._listening)
        if state is PortState.REFUSING:
            refuse(self._listening)
        elif state is PortState.SILENT:
            self._plug = Plug(self._listening, self.place.endpoint)
        else:
            reopen(self._listening)
            self._watch(self._listening)

    def _watch(self, listening: socket.socket) -> None:
        self.context.poller.watch_clients(listening, lambda _: self._accept(listening))

    def _stop_accepting(self, listening: socket.socket) -> None:
        self.context.poller.unwatch_clients(listening)
        if self._pause is not None:
            self._pause.cancel()
        if self._plug is not None:
            self._plug.pull()
            self._plug = None
