"""The end of a change: what was to go is gone, once traffic has left it."""

from collections.abc import Iterable

from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import LoadBalancer
from fakecloud.state import loadbalancers
from fakecloud.state.records import Change, Kind, Record, State


def settled(state: State, changed: Iterable[Record], *, done: bool) -> Change[None]:
    """
    What is left to be changed when the action behind these rows has ended.

    Done: a load balancer that was to be deleted is gone, addresses that were leaving are free. Not done: it stays after all, and
    addresses that traffic has not left are held on.
    """
    records: list[Record] = []
    for row in changed:
        if not isinstance(row.body, LoadBalancer) or row.key not in state.load_balancers:
            continue
        if row.body.deleting:
            change = (loadbalancers.delete if done else loadbalancers.keep)(state, row.key)
        elif done:
            change = loadbalancers.without_leaving(state, row.key)
        else:
            continue
        state = change.state
        records += change.records
    return Change(state, None, Outcome.APPLIED if records else Outcome.UNCHANGED, tuple(records))


def everything(state: State) -> Iterable[Record]:
    """All load balancers, as if each had just been changed."""
    return [Record(Kind.LOAD_BALANCER, one.id, one) for one in state.load_balancers.values()]
