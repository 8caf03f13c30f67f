"""
One open UDP port of a load balancer: each client's datagrams go to one target, and the answers back.

The target stays the same for as long as it is one and is alive: UDP has no connection that could be kept from breaking.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from fakecloud.dataplane.balancer import Balancer, Endpoint
from fakecloud.dataplane.counters import Counters
from fakecloud.dataplane.delivery import Place
from fakecloud.dataplane.faulteffects import NO_FAULT, PortFault, PortState
from fakecloud.dataplane.flowlog import Ended
from fakecloud.dataplane.proxy.context import ProxyContext
from fakecloud.dataplane.proxy.listeneroptions import ListenerOptions
from fakecloud.dataplane.proxy.shaping import Late
from fakecloud.dataplane.proxy.sockets import connect_datagrams
from fakecloud.models.faults import BlackholeFault, HalfOpenFault, ResetAfterFault, SlowFault, TrafficEffect
from fakecloud.models.flows import Ending

_IDLE_SECONDS = 60.0
_IDLE_CHECKS = 4
# Datagrams that wait while the socket to the target is opened; more are lost, as UDP may.
_MOST_EARLY = 64


class DatagramListener(asyncio.DatagramProtocol):
    """Owns one UDP socket and the exchanges of every client that sent something to it."""

    transport: asyncio.DatagramTransport
    _socket: socket.socket

    def __init__(self, place: Place, options: ListenerOptions, context: ProxyContext) -> None:
        self.place = place
        self.context = context
        self.options = options
        self.loop = asyncio.get_running_loop()
        self._balancer = Balancer(options.choices, self.loop.time, self._load)
        self._exchanges: dict[Endpoint, Exchange] = {}
        self._totals = Counters()
        self._by_target: dict[Endpoint, Counters] = {}
        self._fault = NO_FAULT
        self._idle_check: asyncio.TimerHandle | None = None

    async def open(self, bound: socket.socket) -> None:
        """Receive from the socket; it belongs to the listener from now on."""
        self._socket = bound
        await self.loop.create_datagram_endpoint(lambda: self, sock=bound)
        self._check_idle()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        exchange = self._exchanges.get(addr)
        if exchange is not None and self._stale(exchange):
            # Else a client that never pauses would stay with a target that is gone for ever.
            exchange.end("no-target")
            exchange = None
        if exchange is None:
            exchange = self._accept(addr)
            if exchange is None:
                return
        exchange.send(data)

    def send(self, data: bytes, client: Endpoint) -> None:
        """To a client, from the address that it knows."""
        if data:
            self.transport.sendto(data, client)
        else:
            # A transport of asyncio or uvloop takes an empty datagram for nothing to send.
            with contextlib.suppress(OSError):
                self._socket.sendto(data, client)

    def close(self) -> None:
        if self._idle_check is not None:
            self._idle_check.cancel()
        for exchange in list(self._exchanges.values()):
            exchange.end("cut")
        self.transport.abort()

    def follow(self, options: ListenerOptions) -> None:
        self.options = options
        self._balancer.follow(options.choices)
        if options.drain_seconds is not None:
            self.loop.call_later(options.drain_seconds, self._end_drained)

    def suffer(self, fault: PortFault) -> None:
        """A refusing or silent port takes nothing in: there is no handshake that could be refused."""
        self._fault = fault

    @property
    def silent(self) -> bool:
        return self._fault.state is not PortState.OPEN

    @property
    def active_connections(self) -> int:
        return len(self._exchanges)

    def counters(self) -> Counters:
        total = Counters(self._totals.connections, 0, self._totals.bytes_in, self._totals.bytes_out)
        for exchange in self._exchanges.values():
            total.add(exchange.counters)
        return total

    def counters_by_target(self) -> Mapping[Endpoint, Counters]:
        totals = {
            target: Counters(ended.connections, 0, ended.bytes_in, ended.bytes_out)
            for target, ended in self._by_target.items()
        }
        for exchange in self._exchanges.values():
            if exchange.endpoint is not None:
                totals.setdefault(exchange.endpoint, Counters()).add(exchange.counters)
        return totals

    def reset_target(self, address: str) -> None:
        for exchange in list(self._exchanges.values()):
            if exchange.endpoint is not None and exchange.endpoint[0] == address:
                exchange.end("fault")

    def ended(self, exchange: "Exchange", ending: Ending) -> None:
        if self._exchanges.pop(exchange.client, None) is None:
            return
        self.context.connections -= 1
        counters = exchange.counters
        counters.active = 0
        self._totals.add(counters)
        if exchange.endpoint is not None:
            self._by_target.setdefault(exchange.endpoint, Counters()).add(counters)
        self.context.log.add(
            Ended(
                self.place.load_balancer,
                "UDP",
                self.place.endpoint,
                exchange.client,
                exchange.endpoint,
                ending,
                counters.bytes_in,
                counters.bytes_out,
                self.loop.time() - exchange.started,
            )
        )

    async def connect(self, exchange: "Exchange") -> None:
        """Find the exchange a target; without one it ends, and the next datagram tries anew."""
        for endpoint in self._balancer.targets(exchange.client[0]):
            if self.context.refusal(*endpoint) is not None:
                continue
            try:
                exchange.socket = connect_datagrams(endpoint)
            except OSError:
                continue
            await self.loop.create_datagram_endpoint(lambda: exchange, sock=exchange.socket)
            exchange.endpoint = endpoint
            self._balancer.chosen(exchange.client[0], endpoint)
            return
        exchange.end("no-target")

    def _accept(self, client: Endpoint) -> "Exchange | None":
        sources, limit = self.options.sources, self.options.connection_limit
        most = self.context.limits.connections if limit is None else min(limit, self.context.limits.connections)
        in_all = min(self.context.limits.connections, self.context.most_connections)
        full = len(self._exchanges) >= most or self.context.connections >= in_all
        if self.silent or full or (sources is not None and client[0] not in sources):
            return None
        effects = self._fault.strike() if self._fault.strike is not None else ()
        exchange = self._exchanges[client] = Exchange(self, client, effects)
        self.context.connections += 1
        exchange.connecting = self.loop.create_task(self.connect(exchange))
        return exchange

    def _stale(self, exchange: "Exchange") -> bool:
        endpoint, options = exchange.endpoint, self.options
        if endpoint is None:
            return False  # it is still looking for one
        drains = options.drain_seconds is not None and endpoint not in options.staying
        return not drains and self._balancer.lost(endpoint)

    def _load(self, endpoint: Endpoint) -> int:
        return sum(exchange.endpoint == endpoint for exchange in self._exchanges.values())

    def _end_drained(self) -> None:
        for exchange in list(self._exchanges.values()):
            if exchange.endpoint is not None and exchange.endpoint not in self.options.staying:
                exchange.end("drained")

    def _check_idle(self) -> None:
        idle, now = self.options.idle_seconds or _IDLE_SECONDS, self.loop.time()
        for exchange in list(self._exchanges.values()):
            if exchange.idle_since(now) >= idle:
                exchange.end("idle")
        self._idle_check = self.loop.call_later(idle / _IDLE_CHECKS, self._check_idle)


class Exchange(asyncio.DatagramProtocol):
    """One client's datagrams, and the socket of its own that they leave by."""

    def __init__(self, listener: DatagramListener, client: Endpoint, effects: Sequence[TrafficEffect]) -> None:
        self._listener = listener
        self.client = client
        self.endpoint: Endpoint | None = None
        self.counters = Counters(1, 1)
        self.started = listener.loop.time()
        self.connecting: asyncio.Task[None] | None = None
        self.socket: socket.socket | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self._over = False
        # Datagrams without a byte: what moved, too.
        self._empty = 0
        self._early: list[bytes] = []
        self._seen = (-1, 0.0)
        self._deaf = any(isinstance(effect, BlackholeFault | HalfOpenFault) for effect in effects)
        delay = sum(effect.latency_seconds for effect in effects if isinstance(effect, SlowFault))
        self._late = Late(delay, listener.context.wakeups, lambda: self._over) if delay else None
        self._left = min((effect.bytes for effect in effects if isinstance(effect, ResetAfterFault)), default=None)

    def send(self, data: bytes) -> None:
        """From the client to the target."""
        if self._listener.silent or self._deaf:
            return
        if not data:
            self._empty += 1
        self.counters.bytes_in += len(data)
        if self._transport is not None:
            self._later(self._transport.sendto if data else self._send_empty, data)
        elif len(self._early) < _MOST_EARLY:
            self._early.append(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        if self._over:
            self._transport.abort()
            return
        for data in self._early:
            self._later(self._transport.sendto if data else self._send_empty, data)
        self._early.clear()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002 - always the target
        if self._listener.silent or (self._left is not None and self.counters.bytes_out >= self._left):
            return
        if not data:
            self._empty += 1
        self.counters.bytes_out += len(data)
        self._later(lambda answer: self._listener.send(answer, self.client), data)

    def error_received(self, exc: Exception) -> None:  # noqa: ARG002 - the target's port is closed
        """The target refuses: the client's next datagram finds another one."""
        self.end("no-target")

    def end(self, ending: Ending) -> None:
        self._over = True
        if self.connecting is not None:
            self.connecting.cancel()
        if self._transport is not None:
            self._transport.abort()
        self._listener.ended(self, ending)

    def idle_since(self, now: float) -> float:
        moved = self.counters.bytes_in + self.counters.bytes_out + self._empty
        if moved != self._seen[0]:
            self._seen = (moved, now)
        return now - self._seen[1]

    def _send_empty(self, data: bytes) -> None:
        # See DatagramListener.send. The target's refusal is told by the next datagram.
        if self.socket is not None:
            with contextlib.suppress(OSError):
                self.socket.send(data)

    def _later(self, send: Callable[[bytes], None], data: bytes) -> None:
        if self._late is None:
            send(data)
        else:
            self._late.send(send, data)
