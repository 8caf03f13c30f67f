"""What a listener is told: by its route, by the limits of the process, and by faults."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from fakecloud.dataplane.balancer import Choices, Endpoint
from fakecloud.dataplane.flowlog import FlowLog
from fakecloud.dataplane.proxy.connecttimeouts import ConnectTimeouts
from fakecloud.dataplane.proxy.poller import Poller
from fakecloud.models.faults import TrafficEffect
from fakecloud.models.listeners import ProxyProtocol
from fakecloud.state.networks import AddressSet

_MOST_AT_ONCE = 262_144


@dataclass(frozen=True)
class ListenerOptions:
    """Replaced as a whole when the route changes; connections that exist keep their target. Durations in seconds."""

    choices: Choices
    # Who may connect; None is everyone.
    sources: AddressSet | None = None
    proxy_protocol: ProxyProtocol = "none"
    idle_seconds: float | None = None
    # The targets whose connections may stay: those that neither drain nor are removed.
    staying: frozenset[Endpoint] = frozenset()
    drain_seconds: float | None = None
    connection_limit: int | None = None


class PortState(Enum):
    """What a fault does to a listener's port."""

    OPEN = "open"
    REFUSING = "refusing"
    SILENT = "silent"


@dataclass(frozen=True)
class PortFault:
    """What faults order for one listener; `strike` counts a connection and says what happens to it."""

    state: PortState = PortState.OPEN
    strike: Callable[[], Sequence[TrafficEffect]] | None = None


NO_FAULT = PortFault()


@dataclass(frozen=True)
class Limits:
    """Seconds for one attempt to connect to a target, and for all attempts of one client; connections in all."""

    connect_timeout: float = 2.0
    give_up_after: float = 10.0
    connections: int = 100_000


@dataclass
class ProxyContext:
    """What all listeners of a process share. `refusal(address, port)` says why no connection may be made there."""

    limits: Limits
    refusal: Callable[[str, int], str | None]
    log: FlowLog
    connect_timeouts: ConnectTimeouts
    poller: Poller
    # Monotonic, in seconds. Not asyncio's running loop: to find out which it is takes a system call.
    clock: Callable[[], float]
    connections: int = 0
    # What is read is here until it is passed on, which is before anything else is read.
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(_MOST_AT_ONCE)))


@dataclass(frozen=True)
class Place:
    """Which listener it is."""

    load_balancer: str
    address: str
    port: int

    @property
    def endpoint(self) -> Endpoint:
        return self.address, self.port
