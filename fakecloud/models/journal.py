"""The journal of API calls: who asked for what, when, and what came of it."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fakecloud.models.base import Model


class Outcome(StrEnum):
    """What a call did to the cloud; `applied` is the only one that changed it."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    EXISTING = "existing"
    REPLAYED = "replayed"
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
    # 0: no answer was sent.
    status: int
    applied: bool
    outcome: Outcome
    user_agent: str | None
    fencing: str | None
    seconds: float
    # The faults that met it.
    faults: tuple[str, ...] = ()


class CallList(Model):
    """`lastSeq` is what to pass as `since` next; `firstSeq` is the oldest call still held."""

    items: tuple[Call, ...]
    first_seq: int
    last_seq: int


class Count(Model):
    """How many calls had this in common."""

    method: str
    path: str
    status: int
    outcome: Outcome
    count: int


class CountList(Model):
    items: tuple[Count, ...]
    total: int


class Verification(Model):
    """Whether as many calls match as were expected. `complete` is false when older calls were forgotten meanwhile."""

    satisfied: bool
    complete: bool
    count: int
    calls: Annotated[tuple[Call, ...], Field(description="The first of those that match")]
