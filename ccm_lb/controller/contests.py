"""
How often something is done again that another one undoes: at once, then after growing pauses, until it stays calm.

No clock, no timer: whoever asks says what time it is, in seconds on one clock.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Hashable

_MOMENT = 0.001  # seconds; a timer may ring a little early, and a rest that no clock can measure would be waited for without end
REMEMBERED = 4096  # contests; the one not asked about for the longest goes first


@dataclasses.dataclass(frozen=True)
class Pace:
    """
    `free` answers in a row cost no pause; the next waits `first` seconds, each further one twice as long, up to `longest`.

    Each `calm` seconds in which nothing happens take one answer off the row.
    """

    free: int = 1
    first: float = 5.0
    longest: float = 300.0
    calm: float = 300.0

    def pause(self, row: float) -> float:
        """Seconds after the last answer of a row of this length."""
        return 0.0 if row < self.free else min(self.first * 2.0 ** min(row - self.free, 32), self.longest)


@dataclasses.dataclass
class _Contest:
    row: float = 0.0  # answers, less what calm took off
    answered: float = -math.inf
    pause: float = 0.0
    due: float | None = None  # when what was found is to be answered; None while nothing was found
    told: set[Hashable] = dataclasses.field(default_factory=set)
    value: Hashable = None


class Contests:
    """One for each key that was disturbed; `wait` when a disturbance is found, `answered` when it was answered."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._contests: OrderedDict[Hashable, _Contest] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds until a disturbance of `key`, which was found by `now`, is to be answered; 0 means now."""
        contest = self._get(key)
        if contest.due is None:
            contest.row = max(0.0, contest.row - (now - contest.answered) / self._pace.calm)
            if not contest.row:
                contest.told.clear()
            contest.due = max(now, contest.answered + contest.pause)
        wait = contest.due - now
        return wait if wait > _MOMENT else 0.0

    def answered(self, key: Hashable, now: float, value: Hashable = None) -> None:
        """The disturbance of `key` is answered, with `value`."""
        contest = self._get(key)
        contest.value = value
        contest.row += 1
        contest.answered, contest.pause, contest.due = now, self._pace.pause(contest.row), None

    def withdraw(self, key: Hashable) -> None:
        """What was found of `key` was no disturbance."""
        if key in self._contests:
            self._contests[key].due = None

    def note(self, key: Hashable, value: Hashable) -> None:
        """`key` was given `value`; that is no answer."""
        self._get(key).value = value

    def differs(self, key: Hashable, value: Hashable) -> bool:
        """Whether `key` was last given another value, or none that is remembered."""
        return key not in self._contests or self._contests[key].value != value

    def news(self, key: Hashable, what: Hashable) -> bool:
        """Whether it is to be told that `what` of `key` is contested: once, with the first answer that is followed by a pause."""
        contest = self._get(key)
        if contest.row <= self._pace.free - 1 or what in contest.told:
            return False
        contest.told.add(what)
        return True

    def __len__(self) -> int:
        return len(self._contests)

    def _get(self, key: Hashable) -> _Contest:
        contest = self._contests.setdefault(key, _Contest())
        self._contests.move_to_end(key)
        if len(self._contests) > REMEMBERED:
            self._contests.popitem(last=False)
        return contest
