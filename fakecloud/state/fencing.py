"""Fencing: a controller that lost its Lease while it was paused must not write when it wakes up."""

import re
from dataclasses import dataclass, replace

from fakecloud import errors
from fakecloud.models.journal import Outcome
from fakecloud.state.records import Change, Fence, Kind, Record, State, with_item

# A number that SQLite and JSON can hold.
_FORM = re.compile(r"(?P<lease_uid>[ -~]{1,255}):(?P<transitions>[0-9]{1,18})")


@dataclass(frozen=True)
class FencingToken:
    """The header `Fencing-Token: <lease uid>:<transitions>`."""

    lease_uid: str
    transitions: int


def parse(header: str) -> FencingToken:
    """Raises ProblemError (400) when the header has another form."""
    form = _FORM.fullmatch(header)
    if form is None:
        raise errors.malformed_header("Fencing-Token", "expected <lease uid>:<transitions>, e.g. 5f0c:3", header)
    return FencingToken(form["lease_uid"], int(form["transitions"]))


def admit(state: State, cluster: str, token: FencingToken | None) -> Change[None]:
    """
    Remember the highest number of transitions of a cluster's Lease; refuse a lower one with 412.

    Each Lease uid counts on its own: a Lease that was re-created starts over with another uid.
    """
    if token is None:
        return Change(state, None, Outcome.UNCHANGED)
    fence = Fence(cluster=cluster, lease_uid=token.lease_uid, transitions=token.transitions)
    seen = state.fences.get(fence.key)
    if seen is not None and token.transitions < seen.transitions:
        raise errors.problem(
            412,
            "stale-fencing-token",
            f"the Lease {token.lease_uid} of cluster {cluster} was seen with {seen.transitions} transitions, this "
            f"request has {token.transitions}: another holder has taken over; stop writing",
        )
    if seen == fence:
        return Change(state, None, Outcome.UNCHANGED)
    after = replace(state, fences=with_item(state.fences, fence.key, fence))
    return Change(after, None, records=(Record(Kind.FENCE, fence.key, fence),))
