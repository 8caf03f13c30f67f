"""Actions, and the replies that an idempotency key brings back: the newest of each, as long as there is room."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fakecloud.models.actions import Action, ActionStatus
from fakecloud.models.base import Model
from fakecloud.models.loadbalancers import LoadBalancer
from fakecloud.models.queries import ActionQuery
from fakecloud.models.views import LoadBalancerState
from fakecloud.state.records import Kind, Record

_MOST = 10_000


class StoredReply(Model):
    """What a request with this key did. `fingerprint` is the request's, so that another one can't take its place."""

    key: str
    fingerprint: str
    load_balancer: LoadBalancer
    action: str | None


@dataclass(frozen=True)
class Entry:
    """What a change adds to the ledger, and what has to give way; the rows belong into the change's transaction."""

    added: tuple[Action | StoredReply, ...]
    records: tuple[Record, ...]


class Ledger:
    """Kept beside the state, since it grows with each write. `planned` says what to store, `keep` makes it known."""

    def __init__(self, actions: Iterable[Action] = (), replies: Iterable[StoredReply] = ()) -> None:
        self._actions = {action.id: action for action in sorted(actions, key=lambda action: _number(action.id))}
        self._replies = {reply.key: reply for reply in replies}
        self._latest = {(action.resource_type, action.resource): action.id for action in self._actions.values()}
        last = _number(next(reversed(self._actions))) if self._actions else 0
        self._numbers = itertools.count(last + 1)

    def new_id(self) -> str:
        return f"act-{next(self._numbers)}"

    def planned(self, *added: Action | StoredReply) -> Entry:
        records = [Record(_kind(one), _key(one), one) for one in added]
        if any(isinstance(one, Action) and one.id not in self._actions for one in added):
            records += [Record(Kind.ACTION, old, None) for old in _too_old(self._actions)]
        if any(isinstance(one, StoredReply) for one in added):
            records += [Record(Kind.REPLY, old, None) for old in _too_old(self._replies)]
        return Entry(added, tuple(records))

    def keep(self, entry: Entry) -> None:
        for record in entry.records:
            if record.body is None and record.kind is Kind.ACTION:
                gone = self._actions.pop(record.key)
                if self._latest.get((gone.resource_type, gone.resource)) == gone.id:
                    del self._latest[gone.resource_type, gone.resource]
            elif record.body is None:
                del self._replies[record.key]
        for one in entry.added:
            if isinstance(one, Action):
                self._actions[one.id] = one
                self._latest[one.resource_type, one.resource] = one.id
            else:
                self._replies[one.key] = one

    def action(self, action_id: str) -> Action | None:
        return self._actions.get(action_id)

    def reply(self, key: str) -> StoredReply | None:
        return self._replies.get(key)

    def latest(self, load_balancer_id: str) -> Action | None:
        """The load balancer's latest action, while it is still held."""
        return self._actions.get(self._latest.get((Kind.LOAD_BALANCER.value, load_balancer_id), ""))

    def state_of(self, load_balancer_id: str) -> LoadBalancerState:
        latest = self.latest(load_balancer_id)
        if latest is None or latest.status is ActionStatus.DONE:
            return "active"
        return "error" if latest.status is ActionStatus.ERROR else "pending"

    def select(self, query: ActionQuery) -> Sequence[Action]:
        """Newest first."""
        matching = (
            action
            for action in reversed(self._actions.values())
            if query.resource in (None, action.resource) and query.status in (None, action.status.value)
        )
        return list(itertools.islice(matching, query.limit))

    def unfinished(self) -> Sequence[Action]:
        return [action for action in self._actions.values() if not action.status.finished]

    def all_records(self) -> Sequence[Record]:
        """What to remove so that nothing is left."""
        return [
            *(Record(Kind.ACTION, name, None) for name in self._actions),
            *(Record(Kind.REPLY, key, None) for key in self._replies),
        ]


def _kind(one: Action | StoredReply) -> Kind:
    return Kind.ACTION if isinstance(one, Action) else Kind.REPLY


def _key(one: Action | StoredReply) -> str:
    return one.id if isinstance(one, Action) else one.key


def _number(action_id: str) -> int:
    return int(action_id.rpartition("-")[2])


def _too_old(items: Mapping[str, object]) -> Sequence[str]:
    return list(itertools.islice(items, max(0, len(items) + 1 - _MOST)))
