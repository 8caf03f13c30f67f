"""A client's connection and, once there is one, the connection to its target."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from fakecloud.dataplane.balancer import Endpoint
from fakecloud.dataplane.counters import Counters
from fakecloud.dataplane.flowlog import Ended
from fakecloud.dataplane.flows import ClientHalf, Half, Nobody, TargetHalf
from fakecloud.dataplane.forwarding import Place
from fakecloud.dataplane.proxyprotocol import header
from fakecloud.dataplane.shaping import Limited, Slow
from fakecloud.dataplane.sockets import reset
from fakecloud.models.faults import HalfOpenFault, ResetAfterFault, SlowFault, TrafficEffect
from fakecloud.models.flows import Ending

if TYPE_CHECKING:
    from fakecloud.dataplane.listeners import PortListener

_NOBODY = ("", 0)


class Connection:
    """Ends when both sides are closed."""

    __slots__ = (
        "_effects",
        "_ending",
        "_listener",
        "_open_halves",
        "_seen",
        "_started",
        "client",
        "client_endpoint",
        "endpoint",
        "given_up",
        "joining",
        "target",
    )

    def __init__(self, listener: "PortListener") -> None:
        self._listener = listener
        self._open_halves = 0
        self._effects: Sequence[TrafficEffect] = ()
        self._ending: Ending = "closed"
        self.given_up = False
        self._started = 0.0
        # Bytes at the last look, and when that was: who stays at the same number is idle.
        self._seen = (-1, 0.0)
        self.client = ClientHalf(self._client_made, self._half_lost)
        self.client_endpoint: Endpoint = _NOBODY
        self.target: TargetHalf | None = None
        self.endpoint: Endpoint | None = None
        self.joining: asyncio.Task[None] | None = None

    @property
    def client_address(self) -> str:
        return self.client_endpoint[0]

    def target_half(self, endpoint: Endpoint) -> TargetHalf:
        """A protocol for an attempt to connect; only one that succeeds becomes the target."""
        half = TargetHalf(self.client, lambda: self._target_made(half, endpoint), self._half_lost)
        return half

    def suffer(self, effects: Sequence[TrafficEffect]) -> None:
        """What faults do to this connection, before it has a target."""
        self._effects = effects
        for effect in effects:
            if isinstance(effect, ResetAfterFault):
                limited = Limited(self.client.transport, effect.bytes, lambda: self.cut("fault"))
                self.client.transport = cast(asyncio.Transport, limited)
            elif isinstance(effect, SlowFault):
                self._slow(self.client, effect)

    def lose_peer(self) -> None:
        """From now on nobody answers the client, and it is not told."""
        if self.target is not None:
            self.target.peer = None
            reset(self.target.transport)
        self.client.join(Nobody())

    def quiet(self, *, quiet: bool) -> None:
        """Stop reading on both sides, or go on."""
        for half in (self.client, self.target):
            if half is not None and not half.transport.is_closing():
                (half.transport.pause_reading if quiet else half.transport.resume_reading)()

    def cut(self, ending: Ending) -> None:
        """End it at once, for both sides to see."""
        self._ending = ending
        self._stop_joining()
        reset(self.client.transport)
        if self.target is not None:
            reset(self.target.transport)

    def counters(self) -> Counters:
        return Counters(1, 1, self.client.received, self.target.received if self.target is not None else 0)

    def idle_since(self, now: float) -> float:
        """Seconds without a byte, as far as earlier calls saw; counting starts with the first one."""
        received = self.client.received + (self.target.received if self.target is not None else 0)
        if received != self._seen[0]:
            self._seen = (received, now)
        return now - self._seen[1]

    def ended(self, place: Place, counters: Counters) -> Ended:
        return Ended(
            place.load_balancer,
            "TCP",
            place.endpoint,
            self.client_endpoint,
            self.endpoint,
            self._ending,
            counters.bytes_in,
            counters.bytes_out,
            asyncio.get_running_loop().time() - self._started,
        )

    def _client_made(self) -> None:
        self._open_halves += 1
        self._started = asyncio.get_running_loop().time()
        peer = self.client.transport.get_extra_info("peername")
        # None when the client has left already: it is from nowhere.
        self.client_endpoint = _NOBODY if peer is None else (peer[0], peer[1])
        self._listener.accepted(self)

    def _stop_joining(self) -> None:
        # Once the target is there, it ends like any other: an attempt that is cancelled at that point would be closed
        # by the event loop without a word to its protocol.
        if self.joining is not None and self.target is None:
            self.given_up = True
            self.joining.cancel()

    def _target_made(self, half: TargetHalf, endpoint: Endpoint) -> None:
        if self.given_up:
            half.disown()
            return
        self._open_halves += 1
        self.target, self.endpoint = half, endpoint
        version = self._listener.forwarding.proxy_protocol
        if version != "none" and self.client_endpoint is not _NOBODY:
            half.transport.write(header(version, self.client_endpoint, self._listener.place.endpoint))
        for effect in self._effects:
            if isinstance(effect, SlowFault):
                self._slow(half, effect)
            elif isinstance(effect, HalfOpenFault):
                asyncio.get_running_loop().call_soon(self.lose_peer)

    def _slow(self, half: Half, fault: SlowFault) -> None:
        def feeder() -> Half | None:
            return self.target if half is self.client else self.client

        def stop() -> None:
            if (other := feeder()) is not None and not other.transport.is_closing():
                other.transport.pause_reading()

        def go() -> None:
            if (other := feeder()) is not None and not other.transport.is_closing():
                other.transport.resume_reading()

        half.transport = cast(asyncio.Transport, Slow(half.transport, fault, stop, go))

    def _half_lost(self, error: Exception | None) -> None:
        self._open_halves -= 1
        if error is not None and self._ending == "closed":
            self._ending = "reset"
        self._stop_joining()
        if self._open_halves == 0:
            self._listener.ended(self)
            # The halves refer to each other; without this they would wait for the cycle collector.
            self.client.peer = None
            if self.target is not None:
                self.target.peer = None
