"""Times to come at which something is to be done, by one timer of the event loop for all of them."""

import asyncio
import heapq
import itertools
from collections.abc import Callable

# The event loop counts in milliseconds; woken too early, one would only wait again.
_GRAIN = 0.001


class Wakeups:
    """What is asked for costs an entry in a heap. To be made where an event loop runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._set_for = 0.0

    def now(self) -> float:
        """The loop's time, in seconds."""
        return self._loop.time()

    def at(self, when: float, wake: Callable[[], None]) -> None:
        """Call it then, in the loop's time, and never before."""
        heapq.heappush(self._due, (when, next(self._numbers), wake))
        if self._timer is None or when < self._set_for:
            self._set()

    def close(self) -> None:
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._set_for = self._due[0][0]
        self._timer = self._loop.call_later(max(0.0, self._set_for - self._loop.time()) + _GRAIN, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._loop.time()
        # Those that ask anew for a time that is over wait for the next turn: others have theirs first.
        ready = []
        while self._due and self._due[0][0] <= now:
            ready.append(heapq.heappop(self._due)[2])
        for wake in ready:
            wake()
        if self._due and self._timer is None:
            self._set()
