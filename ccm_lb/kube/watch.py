"""
kopf as a source of events; the only file that knows it.

kopf runs in a thread with an event loop of its own: in a shared loop it would cancel other people's tasks when it ends and take
SIGTERM for itself. Its handlers pass events on and do nothing else, since an object's retries, order and concurrency are the
workqueue's. It never writes to the cluster: no finalizer, no annotation, no event.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import aiohttp
import kopf

log = logging.getLogger(__name__)

# What kopf would remove from an object where no handler needs it: a name that nobody ever sets.
_UNUSED_FINALIZER = "ccm-lb.dev/never-set"
# For peering, which is off. Unless it is told, kopf asks for the names of the user, whom an image's uid has none for, and of the host.
_IDENTITY: Any = "ccm-lb"  # a type of kopf's own, which it does not export
_RESTART_DELAYS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
_SETTLING = 10.0  # seconds without a complaint after which a restarted watch counts as working
_SETTLED = 120.0  # seconds of running after which the next restart is quick again

Sink = Callable[[str, str | None, Mapping[str, Any]], None]
"""Called in the controller's loop with (resource, event type or None for a listed object, object)."""


class SessionFactory(Protocol):
    """Where kopf gets its connections from; called in kopf's thread, once for each login."""

    @property
    def server(self) -> str: ...

    def kopf_session(self) -> aiohttp.ClientSession: ...


@dataclasses.dataclass(frozen=True)
class WatchOptions:
    """`service_selector`: a field selector for Services, empty for all; `streaming_lists`: the server has them (1.34)."""

    service_selector: str = ""
    streaming_lists: bool = False


class _NoDiffBase(kopf.DiffBaseStorage):
    """Spares kopf the copy and the comparison of every object, which only its change handlers need."""

    def build(self, *, body: Any, extra_fields: Any = None) -> Any:
        return {}

    def fetch(self, *, body: Any) -> Any:
        return None

    def store(self, *, body: Any, patch: Any, essence: Any) -> None:
        pass


class _NoProgress(kopf.ProgressStorage):
    """Keeps kopf's progress of handlers, of which there is none, out of the objects' annotations."""

    def fetch(self, *, key: Any, body: Any) -> Any:
        return None

    def store(self, *, key: Any, record: Any, body: Any, patch: Any) -> None:
        pass

    def purge(self, *, key: Any, body: Any, patch: Any) -> None:
        pass

    def touch(self, *, body: Any, patch: Any, value: Any) -> None:
        pass

    def clear(self, *, essence: Any) -> Any:
        return essence


def operator_settings(options: WatchOptions) -> kopf.OperatorSettings:
    """The settings of kopf for watching and nothing else."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None  # otherwise kopf schedules a SIGKILL of this process
    settings.persistence.finalizer = _UNUSED_FINALIZER
    settings.persistence.diffbase_storage = _NoDiffBase()
    settings.persistence.progress_storage = _NoProgress()
    settings.watching.initial_streaming = options.streaming_lists
    if options.service_selector:
        settings.watching.field_selectors["services"] = options.service_selector
    return settings


class Watch:
    """
    Events of Services and Nodes, for as long as it runs; whatever ends kopf, it is started again after a growing pause.

    `sink` is called in the loop in which `start` was; `restarted` there too, after each start but the first, since what happened in
    between was not seen.
    """

    def __init__(
        self, sessions: SessionFactory, options: WatchOptions, sink: Sink, restarted: Callable[[], None]
    ) -> None:
        self._sessions = sessions
        self._options = options
        self._sink = sink
        self._restarted = restarted
        self._ending = threading.Event()
        self._stop_run: threading.Event | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: str | None = None
        self._began = 0.0
        self._mailbox: collections.deque[tuple[str, str | None, Mapping[str, Any]]] = collections.deque()

    def start(self) -> None:
        """Start the thread; events arrive in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self._thread.start()

    async def stop(self, timeout: float) -> None:
        """End kopf and its thread; after `timeout` seconds the thread is left behind, it is a daemon."""
        self._ending.set()
        if self._stop_run is not None:
            self._stop_run.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, timeout)

    def failure(self) -> str | None:
        """Why there are no events now, None while there are."""
        if self._thread is not None and not self._thread.is_alive():
            return "the watch thread ended"
        # A cluster without Services sends nothing: a run that goes on is taken for a working one.
        return self._failure if time.monotonic() - self._began < _SETTLING else None

    def _run(self) -> None:
        failures = 0
        while not self._ending.is_set():
            if self._failure is not None:
                self._call(self._restarted)
            began = self._began = time.monotonic()
            stop = self._stop_run = threading.Event()
            if self._ending.is_set():
                return
            try:
                asyncio.run(self._watch(stop))
                reason = "kopf ended by itself"
            except Exception as error:  # noqa: BLE001 - whatever ended kopf, the answer is to start it again
                reason = f"{type(error).__name__}: {error}"
            if self._ending.is_set():
                return
            failures = 0 if time.monotonic() - began > _SETTLED else failures
            pause = _RESTART_DELAYS[min(failures, len(_RESTART_DELAYS) - 1)]
            failures += 1
            self._failure = reason
            log.warning("the watch ended and is started again", extra={"reason": reason, "pause": pause})
            self._ending.wait(pause)

    async def _watch(self, stop: threading.Event) -> None:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            return kopf.AiohttpSession(server=self._sessions.server, aiohttp_session=self._sessions.kopf_session())

        @kopf.on.event("services", registry=registry)
        async def on_service(event: Any, **_: Any) -> None:
            self._deliver("services", event)

        @kopf.on.event("nodes", registry=registry)
        async def on_node(event: Any, **_: Any) -> None:
            self._deliver("nodes", event)

        try:
            await kopf.operator(
                registry=registry,
                settings=operator_settings(self._options),
                clusterwide=True,
                standalone=True,
                identity=_IDENTITY,
                stop_flag=stop,
            )
        finally:
            stop.set()  # kopf waits for the flag in this loop's executor, which would otherwise never end

    def _deliver(self, resource: str, event: Mapping[str, Any]) -> None:
        self._failure = None
        self._mailbox.append((resource, event["type"], event["object"]))
        # Waking the other loop costs more than an event: of many that come together, only the first one does it.
        if len(self._mailbox) == 1:
            self._call(self._empty_mailbox)

    def _empty_mailbox(self) -> None:
        """In the controller's loop: hand over what has come; what comes meanwhile is handed over too, or wakes the loop again."""
        while self._mailbox:
            try:
                self._sink(*self._mailbox[0])
            except BaseException:
                self._mailbox.popleft()
                if self._mailbox:
                    self._call(self._empty_mailbox)  # the others are not to suffer
                raise
            self._mailbox.popleft()

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)
