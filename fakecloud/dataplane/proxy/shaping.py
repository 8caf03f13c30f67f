"""Where the bytes of one side go: to the other one, slowly, only so many of them, or nowhere."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from fakecloud.dataplane.proxy.wakeups import Wakeups
from fakecloud.models.faults import SlowFault

# Bytes that are on their way, and how many times of arrival are told apart among them.
_QUEUE = 65_536
_MOST_MARKS = 1024
_PIECES_PER_SECOND = 20


class Sink(Protocol):
    """Takes all that it is given; a full one asks for nothing more until it has room again."""

    @property
    def full(self) -> bool: ...

    def write(self, data: memoryview) -> None:
        """The memory belongs to the caller again when this returns."""

    def finish(self) -> None:
        """Nothing more will be written."""


class Slow:
    """
    Bytes arrive later, and no faster than ordered.

    `drained` is called when a full queue has room again; `over` says that nobody waits for the rest any more.
    """

    def __init__(
        self, sink: Sink, fault: SlowFault, wakeups: Wakeups, drained: Callable[[], None], over: Callable[[], bool]
    ) -> None:
        self._sink = sink
        self._latency = fault.latency_seconds
        self._rate = fault.bytes_per_second
        # In small pieces, so that a slow line trickles instead of coming in bursts.
        self._piece = None if self._rate is None else max(1, self._rate // _PIECES_PER_SECOND)
        self._wakeups = wakeups
        self._drained = drained
        self._over = over
        self._queue = bytearray()
        # From when on bytes of the queue may go on their way, and how many: in their order, all of the queue.
        self._marks: deque[tuple[float, int]] = deque()
        self._free_at = 0.0
        self._finishing = False

    @property
    def full(self) -> bool:
        return len(self._queue) > _QUEUE or self._sink.full

    def write(self, data: memoryview) -> None:
        waiting = bool(self._marks)
        since, size = self._wakeups.now() + self._latency, len(data)
        # Without latency it goes with what came before it, and so do the last ones of very many.
        if waiting and (self._latency == 0 or len(self._marks) >= _MOST_MARKS):
            earlier, marked = self._marks.pop()
            since, size = earlier if self._latency == 0 else since, marked + size
        self._queue += data
        self._marks.append((since, size))
        if not waiting:
            self._wait()

    def finish(self) -> None:
        if self._queue:
            self._finishing = True
        else:
            self._sink.finish()

    def _wait(self) -> None:
        self._wakeups.at(self._next()[0], self._deliver)

    def _next(self) -> tuple[float, int]:
        """When the next bytes have arrived, and how many."""
        since, size = self._marks[0]
        if self._rate is None or self._piece is None:
            return since, size
        size = min(size, self._piece)
        return max(since, self._free_at) + size / self._rate, size

    def _deliver(self) -> None:
        if self._over():
            self._queue.clear()
            self._marks.clear()
            return
        was_full, now = self.full, self._wakeups.now()
        while self._marks:
            at, size = self._next()
            if at > now:
                self._wait()
                break
            self._free_at = at
            since, marked = self._marks.popleft()
            if marked > size:
                self._marks.appendleft((since, marked - size))
            piece = bytes(self._queue[:size])
            del self._queue[:size]
            self._sink.write(memoryview(piece))
        if was_full and not self.full:
            self._drained()
        if not self._queue and self._finishing:
            self._finishing = False
            self._sink.finish()


class Late:
    """Datagrams arrive `delay` seconds later; what does not fit into the queue is lost, as UDP may."""

    def __init__(self, delay: float, wakeups: Wakeups, over: Callable[[], bool]) -> None:
        self._delay = delay
        self._wakeups = wakeups
        self._over = over
        self._queue: deque[tuple[float, Callable[[bytes], None], bytes]] = deque()
        self._queued = 0

    def send(self, send: Callable[[bytes], None], data: bytes) -> None:
        if len(self._queue) >= _MOST_MARKS or self._queued + len(data) > _QUEUE:
            return
        self._queue.append((self._wakeups.now() + self._delay, send, data))
        self._queued += len(data)
        if len(self._queue) == 1:
            self._wakeups.at(self._queue[0][0], self._deliver)

    def _deliver(self) -> None:
        if self._over():
            self._queue.clear()
            return
        now = self._wakeups.now()
        while self._queue and self._queue[0][0] <= now:
            _, send, data = self._queue.popleft()
            self._queued -= len(data)
            send(data)
        if self._queue:
            self._wakeups.at(self._queue[0][0], self._deliver)


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
