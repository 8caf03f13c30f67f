"""
One resource, listed and then watched for as long as it runs: what client-go calls a reflector.

It heals by itself and alone: whatever ends or silences a watch, the next attempt comes after a short pause, and goes on where the last one
was wherever that is safe. A watch is short on purpose: the server ends it after `WATCH_SECONDS` and sends a bookmark before that,
so that one on which nothing happens is told from one that is dead within seconds, and not after minutes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import orjson

from ccm_lb.errors import ApiError, ApiUnreachableError, CCMError

log = logging.getLogger(__name__)

WATCH_SECONDS = 8  # after which the server ends a watch; its bookmark comes two seconds before
QUIET = 9.5  # seconds without a line after which a watch is given up: what lives has sent its bookmark, or was ended
ANSWER = 5.0  # seconds for the head of an answer, and for the first line of a list; twice that for every third attempt
PAGE = 12.0  # seconds for one page of a list that is not streamed
PAGE_SIZE = 500
# Seconds after the first, second, ... failure in a row: what has just begun may be over soon.
PAUSES = (0.1, 0.5, *[1.0] * 15, 2.0)
LONGEST_PAUSE = 8.0  # seconds; a server that asks for a longer one is asked again after it
SETTLED = 5.0  # seconds for which an attempt has to last for the next failure to count as the first one
_BUSY = frozenset({429, 503})  # the version that we know is as good as it was
_NO_STREAM = frozenset({400, 422})  # the server does not know, or does not have enabled, streaming lists

Json = dict[str, Any]


class Listener(Protocol):
    """Who is told what happens to a resource."""

    async def deliver(self, kind: str | None, obj: Json) -> None:
        """An event of that type; None is an object of a list."""
        ...

    def listed(self) -> None:
        """A list was delivered to its end: what it did not show is gone."""
        ...

    def broke(self) -> None:
        """A watch that worked does not any more; it is opened anew."""
        ...


class Answer(Protocol):
    """The answer to one request, its head received."""

    def lines(self) -> AsyncIterator[bytes]: ...
    async def read(self) -> bytes: ...


class Requests(Protocol):
    """How one resource's list is asked for. Raises ApiError and ApiUnreachableError, also while an answer is read."""

    def get(self, params: Mapping[str, str]) -> AbstractAsyncContextManager[Answer]: ...


class SilenceError(CCMError):
    """The connection stands, and nothing comes."""


class NotKubernetesError(CCMError):
    """What came is nothing that a Kubernetes API says."""


@dataclasses.dataclass
class Pulse:
    """
    Whether a resource's events flow. Written by its reflector, read in any thread: each field is replaced as a whole.

    Times are of the clock that is handed in. Proof is an event, a bookmark, or the end of a watch that lasted for as long as it was
    asked to; the head of an answer is none, and a list is none where watches fail.
    """

    clock: Callable[[], float]
    heard: float  # the last proof
    tried: float  # the last time that the reflector did anything at all
    failures: int = 0  # since the last proof
    reason: str = ""  # of the last failure

    @classmethod
    def begin(cls, clock: Callable[[], float]) -> Pulse:
        """Of a resource that is about to be watched: nothing is wrong with it yet."""
        return cls(clock, heard=clock(), tried=clock())

    def beat(self) -> None:
        self.heard = self.tried = self.clock()
        self.failures = 0

    def listed(self) -> None:
        """A list, or a page of one, has come."""
        self.tried = self.clock()
        if self.failures <= 1:
            self.heard = self.tried

    def fail(self, reason: str) -> None:
        self.tried = self.clock()
        self.reason = reason
        self.failures += 1

    def silence(self) -> float:
        """Seconds since the last proof."""
        return self.clock() - self.heard

    def problem(self) -> str | None:
        """Why no events flow, None while they do. One failure is none: most are over at the next attempt, a moment later."""
        if self.failures > 1:
            return self.reason
        if self.silence() > QUIET + 1:
            return self.reason if self.failures else f"nothing was heard for {self.silence():.0f} s"
        return None


class Reflector:
    """Delivers what there is of a resource, then what happens to it."""

    def __init__(
        self,
        resource: str,
        requests: Requests,
        selector: Mapping[str, str],
        listener: Listener,
        pulse: Pulse,
        *,
        streaming_lists: bool,
    ) -> None:
        """`selector` are the parameters that select what is watched of the resource."""
        self.resource = resource
        self._requests = requests
        self._selector = dict(selector)
        self._listener = listener
        self._pulse = pulse
        self._streaming = streaming_lists
        self._version = ""  # where to go on; empty: from what there is

    async def run(self) -> None:
        """Go on until cancelled."""
        loop, failed = asyncio.get_running_loop(), 0
        while True:
            began, self._pulse.tried = loop.time(), self._pulse.clock()
            try:
                await self._attempt()
            except Exception as error:  # noqa: BLE001 - whatever ended the watch, the answer is the next one
                failed = 1 if loop.time() - began > SETTLED else failed + 1
                self._record_failure(error, first=failed == 1)
                await asyncio.sleep(_pause(error, failed))
            else:
                self._pulse.beat()
                failed = 0

    def _record_failure(self, error: Exception, *, first: bool) -> None:
        reason = str(error) if isinstance(error, CCMError) else f"{type(error).__name__}: {error}"
        if first or reason != self._pulse.reason:  # a fact is said once, however long it lasts
            log.warning("a watch broke and is opened anew", extra={"resource": self.resource, "reason": reason})
        if first:
            self._listener.broke()
        self._pulse.fail(reason)
        status = error.status if isinstance(error, ApiError) else None
        if status not in _BUSY and not isinstance(error, ApiUnreachableError):
            self._version = ""

    def _patience(self) -> float:
        # A server that is slow and not silent has to get through, too.
        return 2 * ANSWER if self._pulse.failures % 3 == 2 else ANSWER

    async def _attempt(self) -> None:
        """List if there is no version to go on from, then watch once. Raises whatever went wrong."""
        try:
            if not self._version:
                await self._list()
                self._pulse.listed()
                self._listener.listed()
            began = asyncio.get_running_loop().time()
            await self._stream({"resourceVersion": self._version, "timeoutSeconds": str(WATCH_SECONDS)}, QUIET)
        except TimeoutError as error:
            raise SilenceError("the server was silent") from error
        lasted = asyncio.get_running_loop().time() - began
        if lasted < WATCH_SECONDS - 1:
            raise ApiUnreachableError(f"the server ended a watch of {WATCH_SECONDS} s after {lasted:.1f} s")

    async def _list(self) -> None:
        if self._streaming:
            try:
                await self._streamed_list()
            except ApiError as error:
                if error.status not in _NO_STREAM:
                    raise
                self._streaming = False
        if not self._streaming:
            await self._paged_list()

    async def _streamed_list(self) -> None:
        """What there is, as the beginning of a watch (KEP-3157), to the bookmark at its end."""
        await self._stream({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, self._patience())
        if not self._version:
            raise ApiUnreachableError("the server ended a list before its end")

    async def _paged_list(self) -> None:
        page = {**self._selector, "limit": str(PAGE_SIZE)}
        while True:
            async with asyncio.timeout(PAGE), self._requests.get(page) as answer:
                found = _object(await answer.read())
            if "items" not in found:
                raise NotKubernetesError("the server answered with something that is no list")
            about = {"apiVersion": found.get("apiVersion"), "kind": str(found.get("kind", "")).removesuffix("List")}
            for item in found["items"] or ():
                await self._listener.deliver(None, {**about, **item})
            self._pulse.listed()
            if not (more := (found.get("metadata") or {}).get("continue")):
                if not (version := _version(found)):
                    raise NotKubernetesError("the server answered with a list without a version")
                self._version = version
                return
            page["continue"] = more

    async def _stream(self, params: Mapping[str, str], first: float) -> None:
        """
        Deliver the events of one watch until it ends; of one that begins with what there is, until that was all.

        `first` is how many seconds the first event may take after the head. Raises for an ERROR among them.
        """
        query = {**self._selector, **params, "watch": "true", "allowWatchBookmarks": "true"}
        loop, listing = asyncio.get_running_loop(), not self._version
        async with asyncio.timeout(self._patience()) as patience, self._requests.get(query) as answer:
            self._pulse.tried, armed = self._pulse.clock(), loop.time()
            patience.reschedule(armed + first)
            async for line in answer.lines():
                if (now := loop.time()) > armed + 0.5:  # not for each one of many
                    patience.reschedule(now + QUIET)
                    armed = now
                kind, obj = _event(line)
                if kind != "BOOKMARK":
                    await self._listener.deliver(None if listing and kind == "ADDED" else kind, obj)
                (self._pulse.listed if listing else self._pulse.beat)()
                if kind == "BOOKMARK" or not listing:
                    self._version = _version(obj) or self._version
                    if listing:
                        return


def _pause(error: Exception, failed: int) -> float:
    asked = error.retry_after if isinstance(error, ApiError) else None
    return min(max(PAUSES[min(failed, len(PAUSES)) - 1], asked or 0.0), LONGEST_PAUSE)


def _object(text: bytes) -> Json:
    try:
        found = orjson.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise NotKubernetesError("the server sent something that is no JSON object")
    return found


def _event(line: bytes) -> tuple[str, Json]:
    event = _object(line)
    kind, obj = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(obj, dict):
        raise NotKubernetesError("the server sent something that is no event")
    if kind == "ERROR":
        code = obj.get("code")
        raise ApiError(f"{code} {obj.get('message')}", status=code if isinstance(code, int) else 0)
    return kind, obj


def _version(obj: Json) -> str:
    """Empty where there is none: such an object is the controller's to complain of."""
    metadata = obj.get("metadata")
    return str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""
