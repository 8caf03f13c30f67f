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
    """Seconds for one attempt to connect to a target, and for all attempts of one client; connections in all."""

    connect_timeout: float = 2.0
    give_up_after: float = 10.0
    connections: int = 100_000


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
    # What is read is here until it is passed on, which is before anything else is read.
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(_MOST_AT_ONCE)))
