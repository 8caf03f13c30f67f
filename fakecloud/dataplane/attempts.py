"""Attempts to connect that last too long, found by one timer for all of them: a timer for each costs a tenth of it."""

import asyncio
from typing import Protocol

_CHECKS = 10


class Attempting(Protocol):
    """Who waits for a target. `given_up` says that it was cancelled for good."""

    joining: asyncio.Task[None] | None
    given_up: bool


class Attempts:
    """`timeout` is in seconds; an attempt may last a tenth longer."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        # In the order of their begin, and so of their end.
        self._since: dict[Attempting, float] = {}
        self._late: set[Attempting] = set()
        self._check: asyncio.TimerHandle | None = None

    def begin(self, attempting: Attempting) -> None:
        loop = asyncio.get_running_loop()
        self._since[attempting] = loop.time()
        if self._check is None:
            self._check = loop.call_later(self._timeout / _CHECKS, self._look)

    def end(self, attempting: Attempting) -> None:
        self._since.pop(attempting, None)
        self._late.discard(attempting)

    def timed_out(self, attempting: Attempting) -> bool:
        """Whether a cancellation came from here; it is taken back then, so that the next target can be tried."""
        if attempting not in self._late:
            return False
        self._late.discard(attempting)
        if attempting.given_up or attempting.joining is None:
            return False
        attempting.joining.uncancel()
        return True

    def close(self) -> None:
        if self._check is not None:
            self._check.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        too_old = loop.time() - self._timeout
        for attempting, since in list(self._since.items()):
            if since > too_old:
                break
            if attempting.joining is not None and attempting not in self._late:
                self._late.add(attempting)
                attempting.joining.cancel()
        self._check = loop.call_later(self._timeout / _CHECKS, self._look) if self._since else None
