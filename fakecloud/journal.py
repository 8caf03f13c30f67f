"""A bounded ring of API calls; reading it is not recorded in it."""

import itertools
from collections import deque
from collections.abc import Sequence

from fakecloud.models.journal import Call, CallList
from fakecloud.models.queries import JournalQuery

_READING = frozenset({"GET", "HEAD"})


class Journal:
    """Kept in memory: it tells what this process was asked, and the oldest calls give way to new ones."""

    def __init__(self, size: int) -> None:
        self._calls: deque[Call] = deque(maxlen=size)
        self._numbers = itertools.count(1)
        self._last = 0

    def next_number(self) -> int:
        self._last = next(self._numbers)
        return self._last

    def add(self, call: Call) -> None:
        self._calls.append(call)

    def select(self, query: JournalQuery) -> CallList:
        """The oldest calls that match, up to the limit; `last_seq` continues after them."""
        matching: Sequence[Call] = list(
            itertools.islice((call for call in self._calls if _matches(call, query)), query.limit + 1)
        )
        shown = tuple(matching[: query.limit])
        return CallList(
            items=shown,
            first_seq=self._calls[0].seq if self._calls else self._last + 1,
            last_seq=shown[-1].seq if len(matching) > query.limit else self._last,
        )


def _matches(call: Call, query: JournalQuery) -> bool:
    return (
        call.seq > query.since
        and query.method in (None, call.method)
        and query.mutating in (None, call.method not in _READING)
        and query.applied in (None, call.applied)
        and query.owner in (None, call.owner)
    )
