"""What a request says beside its body, and what a fault has ordered for it."""

from collections.abc import Callable
from dataclasses import dataclass

from fakecloud.state.fencing import FencingToken


@dataclass(frozen=True)
class ActionOrder:
    """A fault's order for the action: stay pending while `holds`, or end with the error."""

    holds: Callable[[], bool]
    error: str | None


@dataclass(frozen=True)
class Intent:
    """Headers, understood. `fingerprint` is the request's own, for an idempotency key."""

    token: FencingToken | None = None
    if_match: str | None = None
    key: str | None = None
    fingerprint: str = ""
    order: ActionOrder | None = None


NOTHING_SPECIAL = Intent()
