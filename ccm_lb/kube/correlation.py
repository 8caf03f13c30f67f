"""
Which Kubernetes Event an occurrence belongs to: client-go's rules (tools/record/events_cache.go), without I/O.

- The same type, reason and message on the same object is the same Event, with a higher count.
- From the tenth different message of one type and reason on an object within ten minutes of each other on, the rest is one Event whose
  message begins with "(combined from similar events): ".
- An object that is talked about too much (25 at once, then one in 300 s) is not written about any more; its counts go on. Warnings and
  what is normal are told apart here, so that the one does not use up what the other may say.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from ccm_lb.objects import Service
from ccm_lb.redaction import cut

CACHE_SIZE = 4096
MAX_SIMILAR = 10
SIMILAR_WITHIN = 600.0
SPAM_BURST = 25
SPAM_REFILL = 300.0
MESSAGE_LIMIT = 1024  # bytes; a cloud's error may be a whole web page
COMBINED = "(combined from similar events): "

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Subject(NamedTuple):
    """The Service that an Event is about. Its namespace, name and UID identify it; the version is the one that was looked at."""

    namespace: str
    name: str
    uid: str
    resource_version: str


@dataclasses.dataclass(eq=False)
class Record:
    """One Event object, as it should be (`count`, `last`, `message`) and how much of it is written. Times are Unix seconds."""

    subject: Subject
    name: str
    type: str
    reason: str
    message: str
    first: float
    last: float
    count: int = 0
    written: int = 0  # the count that the API server is known to have; 0 as long as the object is not known to exist


class _Recent(Generic[K, V]):
    """The latest CACHE_SIZE values by key; the one not asked for the longest goes first."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        if key not in self._values:
            self._values[key] = make()
            if len(self._values) > CACHE_SIZE:
                self._values.popitem(last=False)
        self._values.move_to_end(key)
        return self._values[key]


@dataclasses.dataclass
class _Similar:
    """The different messages of one type and reason on an object, at most MAX_SIMILAR, in the order in which they came."""

    last: float
    messages: dict[str, None] = dataclasses.field(default_factory=dict)

    def is_one_too_many(self, message: str, now: float) -> bool:
        if now - self.last > SIMILAR_WITHIN:
            self.messages.clear()
        self.last = now
        self.messages[message] = None
        if len(self.messages) < MAX_SIMILAR:
            return False
        self.messages.pop(next(iter(self.messages)))
        return True


@dataclasses.dataclass
class _Allowance:
    """How much of one type may be written about one object."""

    last: float
    tokens: float = SPAM_BURST

    def take(self, now: float) -> bool:
        self.tokens = min(SPAM_BURST, self.tokens + max(0.0, now - self.last) / SPAM_REFILL)
        self.last = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Correlator:
    """Remembers what was said about which Service."""

    def __init__(self) -> None:
        self._records: _Recent[Hashable, Record] = _Recent()
        self._similar: _Recent[Hashable, _Similar] = _Recent()
        self._allowances: _Recent[Hashable, _Allowance] = _Recent()
        self._recalled: set[Hashable] = set()
        self._last_name = 0

    def recall(self, record: Record) -> None:
        """An Event that is there from before this process: what it says counts there, and need not be said again the first time."""
        if len(self._recalled) < CACHE_SIZE:
            key: Hashable = ((record.subject[:3], record.type, record.reason), record.message)
            self._records.get(key, lambda: record)
            self._recalled.add(key)

    def was_told(self, service: Service, type: str, reason: str, message: str) -> bool:  # noqa: A002
        """Whether the user was told so by the process before this one; that is so once."""
        if not self._recalled:
            return False  # the usual case
        meta = service.metadata
        key: Hashable = (((meta.namespace, meta.name, meta.uid), type, reason), cut(message, MESSAGE_LIMIT))
        known = key in self._recalled
        self._recalled.discard(key)
        return known

    def observe(self, service: Service, type: str, reason: str, message: str, now: float) -> tuple[Record, bool]:  # noqa: A002
        """The Event that this occurrence at `now` (Unix seconds) belongs to, counted up; and whether it may be written."""
        meta = service.metadata
        subject = Subject(meta.namespace, meta.name, meta.uid, meta.resource_version)
        kind: Hashable = (subject[:3], type, reason)
        message = cut(message, MESSAGE_LIMIT)
        key: Hashable = (kind, message)
        if self._similar.get(kind, lambda: _Similar(now)).is_one_too_many(message, now):
            key, message = kind, cut(COMBINED + message, MESSAGE_LIMIT)
        record = self._records.get(
            key, lambda: Record(subject, self._new_name(subject.name, now), type, reason, message, first=now, last=now)
        )
        record.count, record.last, record.message = record.count + 1, now, message
        return record, self._allowances.get((subject[:3], type), lambda: _Allowance(now)).take(now)

    def _new_name(self, service: str, now: float) -> str:
        # client-go's names; two of one nanosecond would be the same object.
        self._last_name = max(self._last_name + 1, int(now * 1e9))
        return f"{service}.{self._last_name:016x}"
