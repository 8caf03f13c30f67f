"""A client's connection and, once there is one, the connection to its target."""

import socket
from collections.abc import Iterable, Sequence
from typing import Protocol

from fakecloud.dataplane.balancer import Balancer, Endpoint
from fakecloud.dataplane.counters import Counters
from fakecloud.dataplane.delivery import Place
from fakecloud.dataplane.flowlog import Ended
from fakecloud.dataplane.proxy.context import ProxyContext
from fakecloud.dataplane.proxy.listeneroptions import ListenerOptions
from fakecloud.dataplane.proxy.proxyprotocol import header
from fakecloud.dataplane.proxy.relay import Half
from fakecloud.dataplane.proxy.shaping import Limited, Nowhere, Sink, Slow
from fakecloud.dataplane.proxy.targetsearch import TargetSearch
from fakecloud.models.faults import BlackholeFault, HalfOpenFault, ResetAfterFault, SlowFault, TrafficEffect
from fakecloud.models.flows import Ending


class Listener(Protocol):
    """What a connection needs of the listener that it came through."""

    place: Place
    context: ProxyContext
    options: ListenerOptions
    balancer: Balancer

    def ended(self, connection: "Connection", ending: Ending) -> None:
        """It is over, and the listener forgets it."""


class Connection:
    """Begins with a client, and ends for both sides at once: when both have said all, or one is lost."""

    __slots__ = (
        "_effects",
        "_listener",
        "_one_is_done",
        "_over",
        "_search",
        "_seen",
        "_started",
        "client",
        "client_endpoint",
        "endpoint",
        "target",
    )

    def __init__(self, listener: Listener, client: socket.socket, endpoint: Endpoint) -> None:
        self._listener = listener
        self._effects: Sequence[TrafficEffect] = ()
        self._started = listener.context.clock()
        # Bytes at the last look, and when that was: who stays at the same number is idle.
        self._seen = (-1, 0.0)
        self._search: TargetSearch | None = None
        self._one_is_done = False
        self._over = False
        self.client = Half(client, self, listener.context)
        self.client_endpoint = endpoint
        self.target: Half | None = None
        self.endpoint: Endpoint | None = None

    def begin(self, targets: Iterable[Endpoint], effects: Sequence[TrafficEffect]) -> None:
        """Find it a target, unless a fault says otherwise."""
        context = self._listener.context
        self._effects = effects
        context.poller.watch(self.client.socket, self.client.ready)
        if any(isinstance(effect, BlackholeFault) for effect in effects):
            self.client.sink = Nowhere()
        else:
            self._search = TargetSearch(targets, self._started + context.limits.give_up_after, context, self)
            self._search.go_on()

    def found(self, target: socket.socket, endpoint: Endpoint, events: int) -> None:
        """From here on the two sides talk to each other."""
        self._search = None
        half = self.target = Half(target, self, self._listener.context)
        self.endpoint = endpoint
        self._listener.context.poller.hand_over(target, half.ready)
        self._listener.balancer.chosen(self.client_endpoint[0], endpoint)
        version = self._listener.options.proxy_protocol
        if version != "none":
            half.write(header(version, self.client_endpoint, self._listener.place.endpoint))
        self.client.source, half.source, half.quiet = half, self.client, self.client.quiet
        if any(isinstance(effect, HalfOpenFault) for effect in self._effects):
            half.close(reset=True)
            self.client.sink = Nowhere()
        else:
            self.client.sink, half.sink = self._shaped(half, self.client), self._shaped(self.client, half)
        self.client.move()
        half.ready(events)

    def found_none(self) -> None:
        self.end("no-target")

    def said_all(self, half: Half) -> None:
        """When the other side has too, nothing is left to be said."""
        if self._one_is_done:
            self.end("closed")
        else:
            self._one_is_done = True
            half.shut()

    def quiet(self, *, quiet: bool) -> None:
        """Carry nothing, in both directions, or go on."""
        for half in (self.client, self.target):
            if half is not None:
                half.quiet = quiet
                half.move()

    def end(self, ending: Ending) -> None:
        """End it at once, for both sides to see; ending twice is fine."""
        if self._over:
            return
        self._over = True
        if self._search is not None:
            self._search.stop()
            self._search = None
        for half in (self.client, self.target):
            if half is not None:
                half.close(reset=ending != "closed")
        self._listener.ended(self, ending)

    def counters(self) -> Counters:
        return Counters(1, 1, self.client.received, self.target.received if self.target is not None else 0)

    def idle_since(self, now: float) -> float:
        """Seconds without a byte, as far as earlier calls saw; counting starts with the first one."""
        received = self.client.received + (self.target.received if self.target is not None else 0)
        if received != self._seen[0]:
            self._seen = (received, now)
        return now - self._seen[1]

    def ended(self, place: Place, ending: Ending, counters: Counters) -> Ended:
        return Ended(
            place.load_balancer,
            "TCP",
            place.endpoint,
            self.client_endpoint,
            self.endpoint,
            ending,
            counters.bytes_in,
            counters.bytes_out,
            self._listener.context.clock() - self._started,
        )

    def _shaped(self, half: Half, source: Half) -> Sink:
        """The way to one side, as faults made it."""
        sink: Sink = half
        for effect in self._effects:
            if isinstance(effect, SlowFault):
                sink = Slow(sink, effect, self._listener.context.wakeups, source.move, lambda: self._over)
            elif isinstance(effect, ResetAfterFault) and half is self.client:
                sink = Limited(sink, effect.bytes, lambda: self.end("fault"))
        return sink
