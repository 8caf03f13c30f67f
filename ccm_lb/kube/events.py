"""
Kubernetes Events on Services, written in the background.

What one Event object is, `correlation` says. Here it is written: one write at a time for each object, repeats that come meanwhile in one
PATCH, a few writes at once. A namespace in which writing fails is left alone for growing pauses and then tried again by one write, so
that it cannot keep the others waiting.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from ccm_lb.errors import (
    ApiError,
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnauthorizedError,
)
from ccm_lb.kube.correlation import MESSAGE_LIMIT, Correlator, Record
from ccm_lb.objects import Service
from ccm_lb.redaction import Secrets

log = logging.getLogger(__name__)

COMPONENT = "service-controller"  # upstream's, so that `kubectl describe` and filters show the same
WRITERS = 4
QUEUE_SIZE = 1000  # Event objects with something unwritten
WRITE_TIMEOUT = 10.0  # seconds
PAUSES = (
    1.0,
    2.0,
    4.0,
    8.0,
    15.0,
)  # seconds between tries in a namespace where writing fails; then its Events are given up


class EventApi(Protocol):
    """What is needed of the Kubernetes API: POST, and PATCH as a (strategic) merge. Errors as in `ccm_lb.errors`."""

    async def post(self, path: str, body: Mapping[str, Any]) -> Any: ...
    async def patch(self, path: str, body: Mapping[str, Any]) -> Any: ...


class Observer(Protocol):
    """What metrics want to know."""

    def event_posted(self) -> None: ...
    def event_dropped(self, reason: str, n: int = 1) -> None: ...


@dataclasses.dataclass
class _Trouble:
    """A namespace whose last write failed: left alone while `timer` runs, then tried by a single write."""

    failures: int
    timer: asyncio.TimerHandle | None
    trying: bool = False


class Recorder:
    """Posts Events (a `backends.base.EventRecorder`). To be used in the thread of the event loop; `start` before, `stop` after."""

    def __init__(
        self,
        api: EventApi,
        *,
        observer: Observer,
        now: Callable[[], float] = time.time,
        secrets: Secrets | None = None,
    ) -> None:
        """No message leaves with one of `secrets` in it."""
        self._api = api
        self._secrets = secrets or Secrets()
        self._observer = observer
        self._now = now  # Unix seconds
        self._correlator = Correlator()
        self._pending: dict[Record, None] = {}  # with something unwritten, the oldest first
        self._writing: set[Record] = set()
        self._troubles: dict[str, _Trouble] = {}
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._writers: list[asyncio.Task[None]] = []
        self._told_forbidden = False

    def start(self) -> None:
        """Begin to write."""
        self._writers = [asyncio.create_task(self._write_all(), name=f"events-{n}") for n in range(WRITERS)]

    async def flush(self, timeout: float) -> bool:
        """Wait, at most `timeout` seconds, until everything is written or given up; whether it is."""
        try:
            async with asyncio.timeout(timeout):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """Stop at once; what is not written by now is lost (see `flush`)."""
        for writer in self._writers:
            writer.cancel()
        await asyncio.gather(*self._writers, return_exceptions=True)
        self._writers = []
        if lost := len(self._pending.keys() | self._writing):
            log.debug("events lost at the end", extra={"events": lost})

    def event(self, service: Service, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        """Post in the background; never raises, never blocks."""
        message = self._secrets.line(message, MESSAGE_LIMIT)
        record, allowed = self._correlator.observe(service, type, reason, message, self._now())
        if not allowed:
            self._observer.event_dropped("spam")
            return
        self._pending.setdefault(record)
        if len(self._pending) > QUEUE_SIZE:
            del self._pending[next(iter(self._pending))]
            self._observer.event_dropped("overflow")
        self._settle()

    # ---- writing

    async def _write_all(self) -> None:
        while True:
            while (record := self._take()) is None:
                self._changed.clear()
                await self._changed.wait()
            try:
                await self._write(record)
            finally:
                self._writing.discard(record)
                self._settle()

    def _take(self) -> Record | None:
        for record in self._pending:
            trouble = self._troubles.get(record.subject.namespace)
            if record in self._writing or (trouble is not None and (trouble.timer is not None or trouble.trying)):
                continue
            if trouble is not None:
                trouble.trying = True
            del self._pending[record]
            self._writing.add(record)
            return record
        return None

    def _settle(self) -> None:
        self._changed.set()
        if self._pending or self._writing:
            self._idle.clear()
        else:
            self._idle.set()

    async def _write(self, record: Record) -> None:
        fields = {"event": f"{record.subject.namespace}/{record.name}", "reason": record.reason}
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._send(record)
            self._observer.event_posted()
        except (ApiUnreachableError, UnauthorizedError, TimeoutError) as error:
            self._put_off(record, error, 0.0)
            return
        except ApiError as error:
            if error.status == 429 or error.status >= 500:
                self._put_off(record, error, error.retry_after or 0.0)
                return
            self._observer.event_dropped("refused")
            self._tell_refusal(error, fields)
        self._recovered(record.subject.namespace)

    async def _send(self, record: Record) -> None:
        events = f"/api/v1/namespaces/{record.subject.namespace}/events"
        one = f"{events}/{record.name}"
        count = record.count  # it may grow while we wait
        if record.written:
            try:
                await self._api.patch(one, _change(record))
            except NotFoundError:
                pass  # Events are deleted an hour after their last change
            else:
                record.written = count
                return
        try:
            await self._api.post(events, _body(record))
        except ConflictError:
            # An earlier attempt whose answer was lost.
            await self._api.patch(one, _change(record))
        record.written = count

    # ---- failures

    def _tell_refusal(self, error: ApiError, fields: Mapping[str, object]) -> None:
        gone = isinstance(error, NotFoundError) or "being terminated" in str(error)
        if gone or (isinstance(error, ForbiddenError) and self._told_forbidden):
            log.debug("event dropped", extra={**fields, "error": str(error)})
            return
        self._told_forbidden = self._told_forbidden or isinstance(error, ForbiddenError)
        log.warning("event dropped: the API server refuses it", extra={**fields, "error": str(error)})

    def _put_off(self, record: Record, error: Exception, at_least: float) -> None:
        namespace = record.subject.namespace
        self._pending.setdefault(record)
        trouble = self._troubles.get(namespace)
        if trouble is not None and not trouble.trying:
            return  # the pause has begun already, by a write that was under way beside this one
        failures = trouble.failures + 1 if trouble is not None else 1
        if failures > len(PAUSES):
            self._give_up(namespace, error)
            return
        pause = max(PAUSES[failures - 1], at_least)
        log.debug("event put off", extra={"namespace": namespace, "pause": pause, "error": str(error)})
        timer = asyncio.get_running_loop().call_later(pause, self._try_again, namespace)
        self._troubles[namespace] = _Trouble(failures, timer)

    def _try_again(self, namespace: str) -> None:
        self._troubles[namespace].timer = None
        self._settle()

    def _give_up(self, namespace: str, error: Exception) -> None:
        lost = [record for record in self._pending if record.subject.namespace == namespace]
        for record in lost:
            del self._pending[record]
        del self._troubles[namespace]
        self._observer.event_dropped("unreachable", len(lost))
        log.warning("events dropped", extra={"namespace": namespace, "events": len(lost), "error": str(error)})

    def _recovered(self, namespace: str) -> None:
        trouble = self._troubles.pop(namespace, None)
        if trouble is not None and trouble.timer is not None:
            trouble.timer.cancel()


def _timestamp(when: float) -> str:
    return dt.datetime.fromtimestamp(when, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _change(record: Record) -> dict[str, Any]:
    return {"count": record.count, "lastTimestamp": _timestamp(record.last), "message": record.message}


def _body(record: Record) -> dict[str, Any]:
    subject = record.subject
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": subject.namespace, "name": record.name},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Service",
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
            "resourceVersion": subject.resource_version,
        },
        "type": record.type,
        "reason": record.reason,
        "firstTimestamp": _timestamp(record.first),
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
        **_change(record),
    }
