"""What the next calls of a stand-in do out of the ordinary."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
from collections.abc import AsyncIterator

__all__ = ["Late", "Lost", "Outcome", "Script"]


@dataclasses.dataclass(frozen=True)
class Lost:
    """The call does its work; its answer is lost on the way, and the caller gets `error`."""

    error: Exception


@dataclasses.dataclass(frozen=True)
class Late:
    """The call does its work at once, as a server does; its answer, or error, waits on the way until `until` is set."""

    until: asyncio.Event


Outcome = Exception | asyncio.Event | Lost | Late | None
"""An error that is raised instead of the work; an event that is waited for before it; Lost or Late; None for an ordinary call."""


class Script:
    """Outcomes by verb, each used once and in order; a verb with none left works as usual."""

    def __init__(self) -> None:
        self._next: dict[str, collections.deque[Outcome]] = {}

    def then(self, verb: str, *outcomes: Outcome) -> None:
        """The next calls of `verb` that are not spoken for yet end in `outcomes`."""
        self._next.setdefault(verb, collections.deque()).extend(outcomes)

    def forget(self) -> None:
        """Every call works as usual again."""
        self._next.clear()

    @contextlib.asynccontextmanager
    async def play(self, verb: str) -> AsyncIterator[None]:
        """Around the work of one call: raises or waits as scripted."""
        waiting = self._next.get(verb)
        outcome = waiting.popleft() if waiting else None
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, asyncio.Event):
            await outcome.wait()
        try:
            yield
        finally:
            if isinstance(outcome, Late):
                await outcome.until.wait()
        if isinstance(outcome, Lost):
            raise outcome.error
