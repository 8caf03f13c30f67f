"""One open TCP port of a load balancer: accepts clients, finds each a target, and knows its own connections."""

import asyncio
import functools
import os
import socket
from collections.abc import Mapping

from fakecloud.dataplane.balancer import Balancer, Endpoint
from fakecloud.dataplane.connections import Connection
from fakecloud.dataplane.counters import Counters
from fakecloud.dataplane.doors import Plug, refuse, reopen
from fakecloud.dataplane.forwarding import NO_TROUBLE, Door, Forwarding, House, Place, Trouble
from fakecloud.models.faults import BlackholeFault
from fakecloud.models.flows import Ending

# A connection is found idle at most a quarter of its timeout late.
_IDLE_CHECKS = 4


class PortListener:
    """Owns one listening socket and every connection that came through it."""

    def __init__(self, place: Place, forwarding: Forwarding, house: House) -> None:
        self.place = place
        self.house = house
        self.forwarding = forwarding
        self._loop = asyncio.get_running_loop()
        self._balancer = Balancer(forwarding.choices, self._loop.time, self._load)
        self._totals = Counters()
        self._by_target: dict[Endpoint, Counters] = {}
        self._connections: set[Connection] = set()
        self._trouble = NO_TROUBLE
        self._server: asyncio.Server | None = None
        self._closed = False
        self._idle_check: asyncio.TimerHandle | None = None
        # While a fault keeps the door shut: the listening socket itself, and what fills its queue.
        self._shut: socket.socket | None = None
        self._plug: Plug | None = None

    async def open(self, listening: socket.socket) -> None:
        """Accept from the socket; it belongs to the listener from now on."""
        self._server = await self._loop.create_server(lambda: Connection(self).client, sock=listening)
        if self._closed:
            self._server.close()
        elif self._idle_check is None:
            self._check_idle()

    def close(self) -> None:
        """Stop listening and cut every connection."""
        self._closed = True
        self._close_door(None)
        if self._idle_check is not None:
            self._idle_check.cancel()
        for connection in list(self._connections):
            connection.cut("cut")

    def follow(self, forwarding: Forwarding) -> None:
        """Serve new connections as told; those to targets that are gone or drain end after the drain timeout."""
        self.forwarding = forwarding
        self._balancer.follow(forwarding.choices)
        if forwarding.drain_seconds is not None:
            self._loop.call_later(forwarding.drain_seconds, self._end_drained)
        if self._idle_check is not None:
            self._idle_check.cancel()
        self._check_idle()

    def suffer(self, trouble: Trouble) -> None:
        """Do what faults order from now on; connections that exist go quiet while the address is silent."""
        before, self._trouble = self._trouble, trouble
        if before.door is trouble.door:
            return
        self._set_door(trouble.door)
        for connection in self._connections:
            connection.quiet(quiet=trouble.door is Door.SILENT)

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

    def accepted(self, connection: Connection) -> None:
        """A client is there; find it a target unless it may not have one."""
        self._connections.add(connection)
        self.house.connections += 1
        refused = self._refusal(connection)
        if refused is not None:
            connection.cut(refused)
            return
        effects = self._trouble.strike() if self._trouble.strike is not None else ()
        connection.suffer(effects)
        if self._trouble.door is Door.SILENT or any(isinstance(effect, BlackholeFault) for effect in effects):
            connection.lose_peer()
        else:
            connection.joining = self._loop.create_task(self._find_target(connection))

    def ended(self, connection: Connection) -> None:
        """Both sides are closed."""
        self._connections.discard(connection)
        self.house.connections -= 1
        counters = connection.counters()
        counters.active = 0
        self._totals.add(counters)
        if connection.endpoint is not None:
            ended = self._by_target.get(connection.endpoint)
            if ended is None:
                ended = self._by_target[connection.endpoint] = Counters()
            ended.add(counters)
        self.house.log.add(connection.ended(self.place, counters))

    def _refusal(self, connection: Connection) -> Ending | None:
        if self._closed:
            return "cut"
        sources, limit = self.forwarding.sources, self.forwarding.connection_limit
        if sources is not None and connection.client_address not in sources:
            return "forbidden-source"
        if limit is not None and len(self._connections) > limit:
            return "limit"
        return "limit" if self.house.connections > self.house.limits.connections else None

    async def _find_target(self, connection: Connection) -> None:
        """Try one target after the other; a client for whom there is none is reset."""
        attempts = self.house.attempts
        give_up_at = self._loop.time() + self.house.limits.give_up_after
        for endpoint in self._balancer.targets(connection.client_address):
            # Checked again here, after the API did: no configuration makes this an open relay.
            if self.house.refusal(*endpoint) is not None:
                continue
            attempts.begin(connection)
            try:
                await self._loop.create_connection(functools.partial(connection.target_half, endpoint), *endpoint)
            except OSError:
                if connection.target is None:
                    continue
            except asyncio.CancelledError:
                if not attempts.timed_out(connection):
                    raise
                if self._loop.time() < give_up_at:
                    continue
                break
            finally:
                attempts.end(connection)
            self._balancer.chosen(connection.client_address, endpoint)
            return
        connection.cut("no-target")

    def reset_target(self, address: str) -> None:
        """The target is gone: its connections are reset."""
        for connection in list(self._connections):
            if connection.endpoint is not None and connection.endpoint[0] == address:
                connection.cut("fault")

    def _load(self, endpoint: Endpoint) -> int:
        return sum(connection.endpoint == endpoint for connection in self._connections)

    def _end_drained(self) -> None:
        if self.forwarding.drain_seconds is None:
            return
        for connection in list(self._connections):
            if connection.endpoint is not None and connection.endpoint not in self.forwarding.staying:
                connection.cut("drained")

    def _check_idle(self) -> None:
        idle = self.forwarding.idle_seconds
        self._idle_check = None
        if idle is not None:
            now = self._loop.time()
            for connection in list(self._connections):
                if connection.idle_since(now) >= idle:
                    connection.cut("idle")
            self._idle_check = self._loop.call_later(idle / _IDLE_CHECKS, self._check_idle)

    def _set_door(self, door: Door) -> None:
        if self._shut is None:
            self._shut = socket.socket(fileno=os.dup(self._listening_fd()))
        self._close_door(self._shut)
        if door is Door.REFUSING:
            refuse(self._shut)
        elif door is Door.SILENT:
            self._plug = Plug(self._shut, self.place.endpoint)
        else:
            listening, self._shut = self._shut, None
            reopen(listening)
            self.house.spawn(self.open(listening))

    def _listening_fd(self) -> int:
        if self._server is None:
            raise RuntimeError("the listener is closed")
        return self._server.sockets[0].fileno()

    def _close_door(self, kept: socket.socket | None) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._plug is not None:
            self._plug.pull()
            self._plug = None
        if kept is None and self._shut is not None:
            self._shut.close()
