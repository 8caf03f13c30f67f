"""A bounded ring of API calls; reading it is not recorded in it."""

import asyncio
import fnmatch
import heapq
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator

from fakecloud.models.journal import Call, CallList, Count, CountList, Outcome, Verification
from fakecloud.models.queries import CallFilter, JournalQuery
from fakecloud.models.verification import Expectation

_READING = frozenset({"GET", "HEAD"})
_SHOWN = 100
# Of what is kept, the share of calls that had no token: whoever sends very many must not make the others forgotten.
_STRANGERS = 10


class Journal:
    """Kept in memory: it tells what this process was asked, and the oldest calls give way to new ones."""

    def __init__(self, size: int) -> None:
        self._calls: deque[Call] = deque(maxlen=size)
        self._strangers: deque[Call] = deque(maxlen=max(1, size // _STRANGERS))
        self._last = 0
        self._grown = asyncio.Event()

    def next_number(self) -> int:
        self._last += 1
        return self._last

    def add(self, call: Call, *, authorized: bool = True) -> None:
        (self._calls if authorized else self._strangers).append(call)
        self._grown.set()
        self._grown = asyncio.Event()

    def clear(self) -> None:
        """Forget the calls; their numbers go on, so that `since` stays true."""
        self._calls.clear()
        self._strangers.clear()

    def select(self, query: JournalQuery) -> CallList:
        """The oldest calls that match, up to the limit; `last_seq` continues after them."""
        matching = list(itertools.islice(self._matching(query), query.limit + 1))
        shown = tuple(matching[: query.limit])
        return CallList(
            items=shown,
            first_seq=self._first,
            last_seq=shown[-1].seq if len(matching) > query.limit else self._last,
        )

    def counts(self, query: CallFilter) -> CountList:
        """How often each kind of call was made, the most frequent first."""
        counted = Counter((call.method, call.path, call.status, call.outcome) for call in self._matching(query))
        items = tuple(
            Count(method=method, path=path, status=status, outcome=outcome, count=count)
            for (method, path, status, outcome), count in counted.most_common()
        )
        return CountList(items=items, total=counted.total())

    def verify(self, expectation: Expectation) -> Verification:
        matching = list(self._matching(expectation.filter))
        return Verification(
            satisfied=expectation.holds(len(matching)),
            complete=self._complete(expectation.filter),
            count=len(matching),
            calls=tuple(matching[:_SHOWN]),
        )

    async def follow(self, query: CallFilter) -> AsyncIterator[Call | None]:
        """The calls that match, then each new one as it comes; None after every look, so that the reader may breathe."""
        seen = query.since
        while True:
            grown = self._grown
            for call in list(self._matching(query.model_copy(update={"since": seen}))):
                yield call
            seen = max(seen, self._last)
            yield None
            await grown.wait()

    @property
    def _first(self) -> int:
        return min((held[0].seq for held in (self._calls, self._strangers) if held), default=self._last + 1)

    def _complete(self, query: CallFilter) -> bool:
        """Whether no call that could match was forgotten."""
        concerned = [self._calls, self._strangers] if _may_match_strangers(query) else [self._calls]
        return all(len(held) < (held.maxlen or 0) or query.since + 1 >= held[0].seq for held in concerned)

    def _matching(self, query: CallFilter) -> Iterator[Call]:
        held = heapq.merge(self._calls, self._strangers, key=_seq) if self._strangers else self._calls
        return (call for call in held if _matches(call, query))


def _seq(call: Call) -> int:
    return call.seq


def _may_match_strangers(query: CallFilter) -> bool:
    """Calls without the token are refused, by 401 or as a fault orders, and change nothing."""
    return (
        not query.applied
        and query.outcome in (None, Outcome.REFUSED)
        and query.owner is query.cluster is query.resource is None
    )


def _matches(call: Call, query: CallFilter) -> bool:
    return (
        call.seq > query.since
        # Both are UTC in the same form, up to the fraction: text sorts like time.
        and (query.since_time is None or call.at.rstrip("Z") >= query.since_time.rstrip("Z"))
        and query.method in (None, call.method)
        and (query.path is None or fnmatch.fnmatchcase(call.path, query.path))
        and query.mutating in (None, call.method not in _READING)
        and query.applied in (None, call.applied)
        and query.outcome in (None, call.outcome)
        and query.status in (None, call.status)
        and query.owner in (None, call.owner)
        and query.cluster in (None, call.cluster)
        and query.resource in (None, call.resource)
        and (query.user_agent is None or fnmatch.fnmatchcase(call.user_agent or "", query.user_agent))
        and (query.fault is None or query.fault in call.faults)
    )
