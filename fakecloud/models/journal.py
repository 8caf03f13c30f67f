"""The journal of API calls: who asked for what, when, and what came of it."""

from enum import StrEnum

from fakecloud.models.base import Model


class Outcome(StrEnum):
    """What a call did to the cloud; `applied` is the only one that changed it."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    EXISTING = "existing"
    READ = "read"
    REFUSED = "refused"


class Call(Model):
    """One entry; `seq` grows by one and starts at 1 when the process starts."""

    seq: int
    at: str
    method: str
    path: str
    query: str
    owner: str | None
    cluster: str | None
    resource: str | None
    request_id: str
    status: int
    applied: bool
    outcome: Outcome
    user_agent: str | None
    fencing: str | None
    seconds: float


class CallList(Model):
    """`lastSeq` is what to pass as `since` next; `firstSeq` is the oldest call still held."""

    items: tuple[Call, ...]
    first_seq: int
    last_seq: int
