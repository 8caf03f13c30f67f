"""
Kubernetes Events on Services, written in the background.

What one Event object is, `correlation` says; which is next, `eventqueue`. Here they are written: repeats that come meanwhile in one PATCH,
a few writes at once. A namespace in which writing fails is left alone for growing pauses, so that it cannot keep the others waiting.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Protocol

from ccm_lb.errors import (
    ApiError,
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnauthorizedError,
)
from ccm_lb.kube import pastevents
from ccm_lb.kube.correlation import MESSAGE_LIMIT, Correlator, Record
from ccm_lb.kube.eventqueue import EventQueue
from ccm_lb.objects import Service
from ccm_lb.redaction import Secrets

log = logging.getLogger(__name__)

COMPONENT = "service-controller"  # upstream's, so that `kubectl describe` and filters show the same
WRITERS = 8  # writes at once, those left out that are slow
SHARE = 4  # of them, in one namespace
SLOW = 1.0  # seconds after which a write is slow
QUEUE_SIZE = 1000  # Event objects with something unwritten
WRITE_TIMEOUT = 10.0  # seconds
RECALL_TIMEOUT = 5.0  # seconds
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


class Recorder:
    """Posts Events (a `backends.base.EventRecorder`). To be used in the thread of the event loop; `start` before, `stop` after."""

    def __init__(
        self,
        api: EventApi,
        *,
        observer: Observer,
        secrets: Secrets,
        now: Callable[[], float] = time.time,
    ) -> None:
        """No message leaves with one of `secrets` in it."""
        self._api = api
        self._secrets = secrets
        self._observer = observer
        self._now = now  # Unix seconds
        self._correlator = Correlator()
        self._queue = EventQueue(QUEUE_SIZE, WRITERS, SHARE)
        self._writes: set[asyncio.Task[None]] = set()
        self._rests: dict[str, asyncio.TimerHandle] = {}  # by namespace, until when writing is not tried there
        self._started = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._told_forbidden = False

    def start(self) -> None:
        """Begin to write."""
        self._started = True
        self._proceed()

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
        self._started = False
        lost = self._queue.waiting + len(self._writes)
        for timer in self._rests.values():
            timer.cancel()
        for write in self._writes:
            write.cancel()
        await asyncio.gather(*self._writes, return_exceptions=True)
        if lost:
            log.debug("events lost at the end", extra={"events": lost})

    async def recall(self, api: pastevents.EventList, reasons: Collection[str]) -> None:
        """
        Learn from the Events that are there what was said last for these reasons, which is then not said again the first time.

        What cannot be learned within RECALL_TIMEOUT is said again, and no more than that is lost: raises nothing.
        """
        try:
            async with asyncio.timeout(RECALL_TIMEOUT):
                found = await pastevents.read(api, COMPONENT, reasons)
        except (ApiError, ApiUnreachableError, TimeoutError) as error:
            fields = {"error": str(error) or type(error).__name__}
            log.info("earlier events cannot be read: what they say may be said again", extra=fields)
            return
        for one in pastevents.told(found):
            self._correlator.recall(Record(*one, written=one.times))

    def event(self, service: Service, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        """Post in the background; never raises, never blocks."""
        message = self._secrets.line(message, MESSAGE_LIMIT)
        if self._correlator.was_told(service, type, reason, message):
            return
        record, allowed = self._correlator.observe(service, type, reason, message, self._now())
        if not allowed:
            self._observer.event_dropped("spam")
            return
        if dropped := self._queue.put(record):
            self._observer.event_dropped("overflow", dropped)
        self._proceed()

    # ---- writing

    def _proceed(self) -> None:
        """Begin the writes that may begin now."""
        while self._started and (record := self._queue.take()) is not None:
            write = asyncio.create_task(self._write(record), name=f"event-{record.name}")
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)
        if self._queue.idle:
            self._idle.set()
        else:
            self._idle.clear()

    def _slow(self, record: Record) -> None:
        self._queue.slow(record)
        self._proceed()

    async def _write(self, record: Record) -> None:
        slow = asyncio.get_running_loop().call_later(SLOW, self._slow, record)
        try:
            async with asyncio.timeout(WRITE_TIMEOUT):
                await self._send(record)
            self._observer.event_posted()
            self._written(record)
        except (ApiUnreachableError, UnauthorizedError, TimeoutError) as error:
            self._put_off(record, error, 0.0)
        except ApiError as error:
            if error.status == 429 or error.status >= 500:
                self._put_off(record, error, error.retry_after or 0.0)
            else:
                self._observer.event_dropped("refused")
                self._tell_refusal(error, record)
                self._written(record)
        finally:
            slow.cancel()
        self._proceed()

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

    def _tell_refusal(self, error: ApiError, record: Record) -> None:
        fields = {"event": f"{record.subject.namespace}/{record.name}", "reason": record.reason}
        gone = isinstance(error, NotFoundError) or "being terminated" in str(error)
        if gone or (isinstance(error, ForbiddenError) and self._told_forbidden):
            log.debug("event dropped", extra={**fields, "error": str(error)})
            return
        self._told_forbidden = self._told_forbidden or isinstance(error, ForbiddenError)
        log.warning("event dropped: the API server refuses it", extra={**fields, "error": str(error)})

    def _written(self, record: Record) -> None:
        """The API server takes events of this namespace."""
        self._queue.done(record)
        rest = self._rests.pop(record.subject.namespace, None)
        if rest is not None:
            rest.cancel()

    def _put_off(self, record: Record, error: Exception, at_least: float) -> None:
        namespace = record.subject.namespace
        failures = self._queue.failed(record)
        if failures > len(PAUSES):
            lost = self._queue.give_up(namespace)
            self._observer.event_dropped("unreachable", lost)
            log.warning("events dropped", extra={"namespace": namespace, "events": lost, "error": str(error)})
        elif failures:
            pause = max(PAUSES[failures - 1], at_least)
            log.debug("event put off", extra={"namespace": namespace, "pause": pause, "error": str(error)})
            self._rests[namespace] = asyncio.get_running_loop().call_later(pause, self._try_again, namespace)

    def _try_again(self, namespace: str) -> None:
        del self._rests[namespace]
        self._queue.try_again(namespace)
        self._proceed()


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
