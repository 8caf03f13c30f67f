"""Where the bytes of one side go: to the other one, slowly, only so many of them, or nowhere."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from fakecloud.models.faults import SlowFault

_QUEUE = 65_536


class Sink(Protocol):
    """Takes all that it is given; a full one asks for nothing more until it has room again."""

    @property
    def full(self) -> bool: ...

    def write(self, data: memoryview) -> None:
        """The memory belongs to the caller again when this returns."""

    def finish(self) -> None:
        """Nothing more will be written."""


class Slow:
    """Bytes arrive later, and no faster than ordered; `drained` is called when a full queue has room again."""

    def __init__(self, sink: Sink, fault: SlowFault, drained: Callable[[], None]) -> None:
        self._sink = sink
        self._fault = fault
        self._drained = drained
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._busy_until = 0.0
        self._finishing = False

    @property
    def full(self) -> bool:
        return self._queued > _QUEUE or self._sink.full

    def write(self, data: memoryview) -> None:
        loop = asyncio.get_running_loop()
        rate = self._fault.bytes_per_second
        # In small pieces, so that a slow line trickles instead of coming in bursts.
        step = len(data) if rate is None else max(1, min(len(data), rate // 20))
        for start in range(0, len(data), step):
            piece = bytes(data[start : start + step])
            self._busy_until = max(self._busy_until, loop.time()) + (len(piece) / rate if rate else 0.0)
            self._queue.append(piece)
            loop.call_at(self._busy_until + self._fault.latency_seconds, self._deliver)
        self._queued += len(data)

    def finish(self) -> None:
        if self._queue:
            self._finishing = True
        else:
            self._sink.finish()

    def _deliver(self) -> None:
        piece = self._queue.popleft()
        self._queued -= len(piece)
        self._sink.write(memoryview(piece))
        if not self.full:
            self._drained()
        if not self._queue and self._finishing:
            self._sink.finish()


class Limited:
    """Lets so many bytes through, then calls `over`."""

    def __init__(self, sink: Sink, limit: int, over: Callable[[], None]) -> None:
        self._sink = sink
        self._left = limit
        self._over = over

    @property
    def full(self) -> bool:
        return self._sink.full

    def write(self, data: memoryview) -> None:
        self._sink.write(data[: self._left])
        self._left -= min(self._left, len(data))
        if self._left == 0:
            # What was written is on its way before the reset overtakes it.
            asyncio.get_running_loop().call_soon(self._over)

    def finish(self) -> None:
        self._sink.finish()


class Nowhere:
    """Takes everything, and nobody hears it."""

    full = False

    def write(self, data: memoryview) -> None:
        """Swallowed."""

    def finish(self) -> None:
        """Not passed on."""
