"""What all listeners of a process share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fakecloud.dataplane.flowlog import FlowLog
from fakecloud.dataplane.proxy.connecttimeouts import ConnectTimeouts
from fakecloud.dataplane.proxy.poller import Poller
from fakecloud.dataplane.proxy.wakeups import Wakeups

_MOST_AT_ONCE = 262_144


@dataclass(frozen=True)
class Limits:
    """
    Seconds for one attempt to connect to a target, and for all attempts of one client; connections in all.

    `descriptors` is how many file descriptors there are for listeners (one each) and connections (two each).
    """

    connect_timeout: float = 2.0
    give_up_after: float = 10.0
    connections: int = 100_000
    descriptors: int = 2**20
    # Health checks at a time.
    probes: int = 2**16


@dataclass
class ProxyContext:
    """`refusal(address, port)` says why no connection may be made there."""

    limits: Limits
    refusal: Callable[[str, int], str | None]
    log: FlowLog
    connect_timeouts: ConnectTimeouts
    poller: Poller
    wakeups: Wakeups
    # Monotonic, in seconds. Not asyncio's running loop: to find out which it is takes a system call.
    clock: Callable[[], float]
    connections: int = 0
    listeners: int = 0
    # As many connections as there are file descriptors for; kept, since it is asked for all the time.
    most_connections: int = field(init=False)
    # What is read is here until it is passed on, which is before anything else is read.
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(_MOST_AT_ONCE)))

    def __post_init__(self) -> None:
        self.opened(0)

    def opened(self, listeners: int) -> None:
        """So many listeners more, or less, take a descriptor."""
        self.listeners += listeners
        self.most_connections = max(0, self.limits.descriptors - self.listeners) // 2
