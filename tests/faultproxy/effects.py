"""
What can go wrong with a request.

`applied` says on which side of the server the fault lies: False, the server never sees the request; True, the server has done
the work and the client does not learn of it.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Literal

from tests.faultproxy.exchange import Exchange


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """
    Close the connection: without a byte of an answer, or `after_bytes` bytes of the answer's body (0: after its head).

    `reset` sends RST where a plain close sends FIN.
    """

    after_bytes: int | None = None
    applied: bool = False
    reset: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Stall:
    """Forward the request, then pass nothing on (or `after_bytes` of the body) and keep the connection open: no FIN, no RST."""

    after_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Answer with a Kubernetes Status object instead of the server's answer; `retry_after` in whole seconds."""

    status: int
    reason: str | None = None
    message: str = "a fault that the test ordered"
    retry_after: int | None = None
    applied: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """Answer with these bytes instead of the server's answer, as something does that is no Kubernetes API: a portal, a broken proxy."""

    body: bytes
    status: int = 200
    content_type: str = "text/html"


@dataclasses.dataclass(frozen=True, slots=True)
class Delay:
    """Wait `seconds` before forwarding, or with `applied` before passing the answer on."""

    seconds: float
    applied: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Act:
    """
    Call back before forwarding, or with `applied` when the server has answered and the client does not know it yet.

    With `pass_on` False the connection is closed afterwards instead: a callback that kills the client would otherwise race
    with the news of its death.
    """

    call: Callable[[Exchange], Awaitable[None]]
    applied: bool = False
    pass_on: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class InjectError:
    """Send an ERROR event into a watch after `after_events` events, then end the watch as the API server does."""

    code: int = 410
    reason: str = "Expired"
    message: str = "too old resource version"
    after_events: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class DropField:
    """
    Remove a field from JSON, as an older server or an older proxy would: `status.loadBalancer.ingress[].ipMode`.

    The path starts at an object; a list's items and a watch's objects are each taken as one.
    """

    path: str
    of: Literal["response", "request"] = "response"


@dataclasses.dataclass(frozen=True, slots=True)
class DuplicateEvents:
    """Pass every event of a watch on `times` times."""

    times: int = 2


@dataclasses.dataclass(frozen=True, slots=True)
class ReorderEvents:
    """Pass events on in reversed groups of `window`; a group that does not fill goes on after `patience` seconds."""

    window: int = 2
    patience: float = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class HoldEvents:
    """
    Keep a watch's events back until `release`; with `name` only those of objects whose name matches the regular expression,
    while the others overtake them.
    """

    name: str | None = None
    gate: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    def release(self) -> None:
        """Let them go, in their order, and hold no more."""
        self.gate.set()


Effect = (
    Cut | Stall | Answer | Page | Delay | Act | InjectError | DropField | DuplicateEvents | ReorderEvents | HoldEvents
)
