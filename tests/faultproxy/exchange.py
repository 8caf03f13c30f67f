"""One request and what became of it: the log entry that tests read, and the handle on an answer that is still open."""

import asyncio
import dataclasses
import json
from typing import Any, Literal, Protocol

from tests.faultproxy.rules import Request

Outcome = Literal["pending", "passed", "answered", "cut", "client gone", "upstream gone"]


class OpenAnswer(Protocol):
    """An answer that is being passed on."""

    def close(self, *, reset: bool) -> None:
        """End the client's connection now."""

    async def inject(self, line: bytes, *, end: bool) -> None:
        """Write a line of ours into the stream, and end the stream after it."""


@dataclasses.dataclass(slots=True)
class Exchange:
    """
    A request as the proxy saw it.

    `number` counts from 1; `at` is in seconds on the monotonic clock; `body` is what the client sent; `forwarded` says whether
    the server got it; `status` is what the client was told, None if nothing; `upstream_status` what the server said;
    `passed_bytes` how much of the answer's body went to the client.
    """

    number: int
    at: float
    request: Request
    body: bytes = b""
    forwarded: bool = False
    upstream_status: int | None = None
    status: int | None = None
    passed_bytes: int = 0
    outcome: Outcome = "pending"
    flowing: asyncio.Event = dataclasses.field(default_factory=asyncio.Event, repr=False)
    answer: OpenAnswer | None = dataclasses.field(default=None, repr=False)

    @property
    def method(self) -> str:
        """As in `request`."""
        return self.request.method

    @property
    def path(self) -> str:
        """As in `request`."""
        return self.request.path

    @property
    def json(self) -> Any:
        """The request's body, parsed; None when there was none."""
        return json.loads(self.body) if self.body else None

    @property
    def is_open(self) -> bool:
        """The answer is still being passed on, as a watch's is."""
        return self.outcome == "pending" and self.answer is not None
