"""One open port of a load balancer: accepts clients, finds each a target, and knows its own connections."""

import asyncio
import itertools
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fakecloud.dataplane.balancing import round_robin
from fakecloud.dataplane.flows import ClientHalf, TargetHalf
from fakecloud.dataplane.sockets import reset
from fakecloud.networks import AddressSet

# An address and a port, and whether health checks let it have traffic.
Candidates = Sequence[tuple[tuple[str, int], bool]]


@dataclass(frozen=True)
class Forwarding:
    """Where new connections of a listener go; replaced as a whole, connections that exist keep their target."""

    candidates: Callable[[], Candidates]
    # Who may connect; None is everyone.
    sources: AddressSet | None


@dataclass(frozen=True)
class Limits:
    """Seconds for one attempt to connect to a target, and for all attempts of one client together."""

    connect_timeout: float = 2.0
    give_up_after: float = 10.0


@dataclass
class Counters:
    """Since the listener opened."""

    connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class PortListener:
    """Owns one listening socket and every connection that came through it."""

    def __init__(self, forwarding: Forwarding, limits: Limits, refusal: Callable[[str, int], str | None]) -> None:
        self.forwarding = forwarding
        self._limits = limits
        self._refusal = refusal
        self._ended = Counters()
        self._turn = itertools.count()
        self._flows: set[_Flow] = set()
        self._server: asyncio.Server | None = None

    async def open(self, listening: socket.socket) -> None:
        """Accept from the socket; it belongs to the listener from now on."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Flow(self).client, sock=listening)

    def close(self) -> None:
        """Stop listening and cut every connection."""
        if self._server is not None:
            self._server.close()
        for flow in list(self._flows):
            flow.cut()

    @property
    def active_connections(self) -> int:
        return len(self._flows)

    def counters(self) -> Counters:
        """What went through so far, connections that are still open included."""
        total = Counters(self._ended.connections + len(self._flows), self._ended.bytes_in, self._ended.bytes_out)
        for flow in self._flows:
            flow.add_to(total)
        return total

    def accepted(self, flow: "_Flow") -> None:
        """A client is there; find it a target unless its address is not among the sources."""
        self._flows.add(flow)
        if self.forwarding.sources is None or _is_from(flow.client, self.forwarding.sources):
            flow.joining = asyncio.create_task(self._find_target(flow))
        else:
            reset(flow.client.transport)

    def ended(self, flow: "_Flow") -> None:
        """Both sides are closed."""
        self._flows.discard(flow)
        self._ended.connections += 1
        flow.add_to(self._ended)

    async def _find_target(self, flow: "_Flow") -> None:
        """Try one target after the other; a client for whom there is none is reset."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.give_up_after
        for address, port in round_robin(self.forwarding.candidates(), next(self._turn)):
            # Checked again here, after the API did: no configuration makes this an open relay.
            if self._refusal(address, port) is not None:
                continue
            try:
                async with asyncio.timeout_at(min(deadline, loop.time() + self._limits.connect_timeout)):
                    await loop.create_connection(flow.target_half, address, port)
            except OSError:
                if flow.target is None:
                    continue
            return
        reset(flow.client.transport)


def _is_from(client: ClientHalf, sources: AddressSet) -> bool:
    peer = client.transport.get_extra_info("peername")
    return peer is not None and peer[0] in sources


class _Flow:
    """A client and, once it is connected, its target; ends when both sides are closed."""

    __slots__ = ("_listener", "_open_halves", "client", "joining", "target")

    def __init__(self, listener: PortListener) -> None:
        self._listener = listener
        self._open_halves = 0
        self.client = ClientHalf(self._client_made, self._half_lost)
        self.target: TargetHalf | None = None
        self.joining: asyncio.Task[None] | None = None

    def target_half(self) -> TargetHalf:
        """A protocol for an attempt to connect; only one that succeeds becomes the target."""
        half = TargetHalf(self.client, lambda: self._target_made(half), self._half_lost)
        return half

    def add_to(self, total: Counters) -> None:
        total.bytes_in += self.client.received
        total.bytes_out += self.target.received if self.target is not None else 0

    def cut(self) -> None:
        if self.joining is not None:
            self.joining.cancel()
        reset(self.client.transport)
        if self.target is not None:
            reset(self.target.transport)

    def _client_made(self) -> None:
        self._open_halves += 1
        self._listener.accepted(self)

    def _target_made(self, half: TargetHalf) -> None:
        self._open_halves += 1
        self.target = half

    def _half_lost(self) -> None:
        self._open_halves -= 1
        if self.joining is not None:
            self.joining.cancel()
        if self._open_halves == 0:
            self._listener.ended(self)
            # The halves refer to each other; without this they would wait for the cycle collector.
            self.client.peer = None
            if self.target is not None:
                self.target.peer = None
