"""
A queue of keys with client-go's guarantees, for one event loop. It knows no Kubernetes.

- A key that is added while it waits is there once; the work sees the newest state anyway.
- A key is never worked on twice at a time: added while it is worked on, it comes again after `done`.
- First come, first served; a key in a delay is not in the way of others.
- A failure makes the next delay of that key twice as long, from `base_delay` to `max_delay`; `forget` sets it back.
- `add` ends a delay at once: news about a key does not wait for a backoff.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Hashable
from typing import Generic, NamedTuple, Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class QueueClosedError(Exception):
    """The queue was shut down: no more work."""


class Observer(Protocol):
    """What metrics want to know."""

    def depth(self, n: int) -> None: ...
    def added(self) -> None: ...
    def started(self, queued_seconds: float) -> None: ...
    def finished(self, work_seconds: float) -> None: ...
    def retried(self) -> None: ...


class Wait(NamedTuple):
    """Where a key stands: seconds since it waits for a worker, since it is worked on, until its delay ends; None where it does not."""

    queued: float | None
    working: float | None
    delay: float | None


class Workqueue(Generic[K]):
    """`get`, work, `done`; and around it `forget` after success or `add_rate_limited` after a failure. Delays are seconds."""

    def __init__(self, observer: Observer, *, base_delay: float = 5.0, max_delay: float = 300.0) -> None:
        self._observer = observer
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._ready: collections.deque[K] = collections.deque()
        self._available = asyncio.Semaphore(0)  # as many permits as keys in _ready, and one more once closed
        self._dirty: dict[K, float] = {}  # keys that need work, with the time they began to; waiting or worked on
        self._processing: dict[K, float] = {}  # keys that are worked on, since when
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, key: K) -> None:
        """Work on `key` as soon as a worker is free, even if it is in a delay."""
        if self._closed:
            return
        self._cancel_timer(key)
        if key in self._dirty:
            return
        self._dirty[key] = asyncio.get_running_loop().time()
        self._observer.added()
        if key not in self._processing:
            self._push(key)

    def add_after(self, key: K, delay: float) -> None:
        """Work on `key` in `delay` seconds; of two delays the shorter one counts."""
        if delay <= 0:
            self.add(key)
            return
        if self._closed or key in self._dirty:
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self.add, key)

    def add_rate_limited(self, key: K) -> float:
        """Work on `key` again after its backoff; returns how many seconds that is."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(self._base_delay * 2.0 ** min(failures, 32), self._max_delay)
        self._observer.retried()
        self.add_after(key, delay)
        return delay

    def add_at_longest(self, key: K) -> float:
        """Work on `key` again after the longest pause there is; returns how many seconds that is."""
        self._observer.retried()
        self.add_after(key, self._max_delay)
        return self._max_delay

    def forget(self, key: K) -> None:
        """`key` succeeded: its next failure starts at the shortest delay."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How many times `key` has failed in a row."""
        return self._failures.get(key, 0)

    def idle(self, key: K) -> bool:
        """Whether `key` neither waits nor is worked on, and is in no delay."""
        return key not in self._dirty and key not in self._processing and key not in self._timers

    def busy(self) -> set[K]:
        """The keys that are not idle."""
        return {*self._dirty, *self._processing, *self._timers}

    def wait(self, key: K) -> Wait:
        """Where `key` stands now."""
        now = asyncio.get_running_loop().time()
        queued, working, timer = self._dirty.get(key), self._processing.get(key), self._timers.get(key)
        return Wait(
            None if queued is None else now - queued,
            None if working is None else now - working,
            None if timer is None else max(0.0, timer.when() - now),
        )

    def settled(self, key: K) -> bool:
        """Whether no work on `key` is to begin: it is idle, or worked on just now."""
        return key not in self._dirty and key not in self._timers

    async def get(self) -> K:
        """The next key to work on; the caller owes a `done`. Raises QueueClosedError once the queue is shut down."""
        await self._available.acquire()
        if self._closed:
            self._available.release()  # for the next one who waits
            raise QueueClosedError
        key = self._ready.popleft()
        now = asyncio.get_running_loop().time()
        self._observer.depth(len(self._ready))
        self._observer.started(now - self._dirty.pop(key))
        self._processing[key] = now
        return key

    def done(self, key: K) -> None:
        """The work on `key` ended, well or not; if it was added meanwhile, it comes again."""
        began = self._processing.pop(key)
        self._observer.finished(asyncio.get_running_loop().time() - began)
        if key in self._dirty and not self._closed:
            self._push(key)

    def shut_down(self) -> None:
        """Give out no more work; what is worked on goes on. What waits is dropped: the next start finds it again."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._available.release()

    def _push(self, key: K) -> None:
        self._ready.append(key)
        self._observer.depth(len(self._ready))
        self._available.release()

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
