"""Attempts to connect that last too long, found by one timer for all of them: a timer for each costs a tenth of it."""

import asyncio
from typing import Protocol

_CHECKS = 10


class Connecting(Protocol):
    """Who waits for a target to answer."""

    def late(self) -> None:
        """It did not answer in time."""


class ConnectTimeouts:
    """`timeout` is in seconds; an attempt may last a tenth longer. To be made where an event loop runs."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        # In the order of their begin, and so of their end.
        self._since: dict[Connecting, float] = {}
        self._check: asyncio.TimerHandle | None = None

    def begin(self, attempting: Connecting) -> None:
        self._since[attempting] = self._loop.time()
        if self._check is None:
            self._check = self._loop.call_later(self._timeout / _CHECKS, self._look)

    def end(self, attempting: Connecting) -> None:
        self._since.pop(attempting, None)

    def close(self) -> None:
        if self._check is not None:
            self._check.cancel()

    def _look(self) -> None:
        too_old = self._loop.time() - self._timeout
        for attempting, since in list(self._since.items()):
            if since > too_old:
                break
            # Who was ended by another one's end is not late.
            if self._since.pop(attempting, None) is not None:
                attempting.late()
        self._check = self._loop.call_later(self._timeout / _CHECKS, self._look) if self._since else None
