"""Stand-ins for a connection's transport that make it slow, end it after so many bytes, or lead nowhere."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from fakecloud.models.faults import SlowFault

_QUEUE = 65_536


class Wrapped:
    """Everything but what a subclass does itself is done by the transport."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Slow(Wrapped):
    """Bytes arrive later, and no faster than ordered; a full queue stops whoever feeds it by `stop` and `go`."""

    def __init__(self, transport: Any, fault: SlowFault, stop: Callable[[], None], go: Callable[[], None]) -> None:
        super().__init__(transport)
        self._fault = fault
        self._stop, self._go = stop, go
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued = 0
        self._busy_until = 0.0
        self._ends: Callable[[], None] | None = None

    def write(self, data: bytes) -> None:
        if not data:
            return
        loop = asyncio.get_running_loop()
        rate = self._fault.bytes_per_second
        # In small pieces, so that a slow line trickles instead of coming in bursts.
        step = len(data) if rate is None else max(1, min(len(data), rate // 20))
        for start in range(0, len(data), step):
            piece = bytes(data[start : start + step])
            self._busy_until = max(self._busy_until, loop.time()) + (len(piece) / rate if rate else 0.0)
            self._queue.append((self._busy_until + self._fault.latency_seconds, piece))
            loop.call_at(self._queue[-1][0], self._deliver)
        self._queued += len(data)
        if self._queued > _QUEUE:
            self._stop()

    def write_eof(self) -> None:
        self._after_queue(self._transport.write_eof)

    def close(self) -> None:
        self._after_queue(self._transport.close)

    def _after_queue(self, end: Callable[[], None]) -> None:
        if self._queue:
            self._ends = end
        else:
            end()

    def _deliver(self) -> None:
        _, piece = self._queue.popleft()
        self._queued -= len(piece)
        if self._transport.is_closing():
            return
        self._transport.write(piece)
        if self._queued <= _QUEUE // 2:
            self._go()
        if not self._queue and self._ends is not None:
            self._ends()


class Limited(Wrapped):
    """Lets so many bytes through, then calls `over`."""

    def __init__(self, transport: Any, limit: int, over: Callable[[], None]) -> None:
        super().__init__(transport)
        self._left = limit
        self._over = over

    def write(self, data: bytes) -> None:
        self._transport.write(data[: self._left])
        self._left -= min(self._left, len(data))
        if self._left == 0:
            # What was written is on its way before the reset overtakes it.
            asyncio.get_running_loop().call_soon(self._over)


class Nowhere:
    """A transport that takes everything and gives nothing."""

    def write(self, data: bytes) -> None:
        """Swallowed."""

    def write_eof(self) -> None:
        """Nobody hears it."""

    def close(self) -> None:
        """Nothing is open."""

    abort = close

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Nothing comes from there."""

    resume_reading = pause_reading

    def get_extra_info(self, name: str) -> Any:  # noqa: ARG002 - a transport's method
        raise OSError("there is no socket")
