"""
Which event is written next. It writes nothing itself, and knows no clock.

- The events of one Service are written one after the other, in the order in which they first happened; one that failed stays the first.
- Namespaces take turns, and Services within them; each namespace has a share of the writes at a time, so that one cannot keep the
  others waiting. A write that is slow takes no share any more, and until it ends its namespace gets no other one.
- A namespace in which writing fails rests; then one write tries again.
- When too much waits, the namespace with the most of it loses its oldest.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

from ccm_lb.kube.correlation import Record

Waiting = OrderedDict[Record, None]


@dataclasses.dataclass
class _Namespace:
    """By UID of the Service: what waits of those of which nothing is being written (`ready`), and of the others (`busy`)."""

    ready: OrderedDict[str, Waiting] = dataclasses.field(default_factory=OrderedDict)
    busy: dict[str, Waiting] = dataclasses.field(default_factory=dict)
    size: int = 0
    slow: set[Record] = dataclasses.field(default_factory=set)
    failures: int = 0
    resting: bool = False

    def shares(self, share: int) -> bool:
        """Whether it may have one more write now."""
        if not self.ready or self.resting or self.slow:
            return False
        return len(self.busy) < (1 if self.failures else share)


class EventQueue:
    """`put`, `take`, write, `done` or `failed`. `size` events wait at most; `writers` quick writes at once, `share` in one namespace."""

    def __init__(self, size: int, writers: int, share: int) -> None:
        self._size, self._writers, self._share = size, writers, share
        self._namespaces: OrderedDict[str, _Namespace] = OrderedDict()
        self._waiting = 0
        self._quick = 0

    @property
    def waiting(self) -> int:
        """How many events wait to be written."""
        return self._waiting

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is being written."""
        return not self._namespaces

    def put(self, record: Record) -> int:
        """`record` has something unwritten; how many events had to be given up for it."""
        self._add(record)
        if self._waiting <= self._size:
            return 0
        fullest = max(self._namespaces.values(), key=lambda one: one.size)
        subjects = fullest.ready or fullest.busy
        uid = next(uid for uid, waiting in subjects.items() if waiting)
        subjects[uid].popitem(last=False)
        self._count(fullest, -1)
        if fullest.ready.get(uid) == {}:
            del fullest.ready[uid]
        return 1

    def take(self) -> Record | None:
        """What is to be written now, if anything; the caller owes a `done` or `failed`."""
        if self._quick >= self._writers:
            return None
        for name, namespace in self._namespaces.items():
            if namespace.shares(self._share):
                uid, waiting = namespace.ready.popitem(last=False)
                record, _ = waiting.popitem(last=False)
                namespace.busy[uid] = waiting
                self._count(namespace, -1)
                self._quick += 1
                self._namespaces.move_to_end(name)
                return record
        return None

    def slow(self, record: Record) -> None:
        """The write of `record` takes long."""
        self._namespaces[record.subject.namespace].slow.add(record)
        self._quick -= 1

    def done(self, record: Record) -> None:
        """`record` was written, or refused for good."""
        namespace = self._ended(record)
        namespace.failures, namespace.resting = 0, False
        self._forget_if_idle(record.subject.namespace)

    def failed(self, record: Record) -> int:
        """
        `record` could not be written: its namespace rests until `try_again` or `give_up`.

        The number of failures in a row; 0 if it rests already, by a write that was under way beside this one.
        """
        namespace = self._ended(record)
        self._add(record, first=True)
        if namespace.resting:
            return 0
        namespace.resting = True
        namespace.failures += 1
        return namespace.failures

    def try_again(self, name: str) -> None:
        """The namespace has rested."""
        self._namespaces[name].resting = False
        self._forget_if_idle(name)

    def give_up(self, name: str) -> int:
        """Forget what waits in a namespace; how many events that were."""
        namespace = self._namespaces[name]
        lost = namespace.size
        self._count(namespace, -lost)
        namespace.ready.clear()
        for waiting in namespace.busy.values():
            waiting.clear()
        namespace.failures, namespace.resting = 0, False
        self._forget_if_idle(name)
        return lost

    def _add(self, record: Record, *, first: bool = False) -> None:
        subject = record.subject
        namespace = self._namespaces.setdefault(subject.namespace, _Namespace())
        waiting = namespace.busy.get(subject.uid)
        if waiting is None:
            waiting = namespace.ready.setdefault(subject.uid, OrderedDict())
        if record not in waiting:
            waiting[record] = None
            self._count(namespace, 1)
        if first:
            waiting.move_to_end(record, last=False)
            namespace.ready.move_to_end(subject.uid, last=False)

    def _count(self, namespace: _Namespace, change: int) -> None:
        namespace.size += change
        self._waiting += change

    def _ended(self, record: Record) -> _Namespace:
        namespace = self._namespaces[record.subject.namespace]
        if record in namespace.slow:
            namespace.slow.discard(record)
        else:
            self._quick -= 1
        waiting = namespace.busy.pop(record.subject.uid)
        if waiting:
            namespace.ready[record.subject.uid] = waiting
        return namespace

    def _forget_if_idle(self, name: str) -> None:
        namespace = self._namespaces[name]
        if not namespace.ready and not namespace.busy and not namespace.resting:
            del self._namespaces[name]
