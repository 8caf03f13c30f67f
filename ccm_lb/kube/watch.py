"""
The watch of Services and Nodes, kept alive: kopf in a thread of its own, and somebody outside of it who sees whether events flow.

A thread and a loop of its own, since in a shared loop kopf would cancel other people's tasks when it ends and take SIGTERM for
itself. What goes wrong with one resource is its reflector's to mend. What that cannot mend is mended here: a kopf that ends,
that hangs or that brings nothing is left behind, whatever it says of itself, and another one is started.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ccm_lb import loops
from ccm_lb.kube import operator
from ccm_lb.kube.operator import RESOURCES, SessionFactory, WatchOptions
from ccm_lb.kube.reflector import Pulse

__all__ = ["SessionFactory", "Sink", "Watch", "WatchOptions"]

log = logging.getLogger(__name__)

STUCK = 15.0  # seconds without any sign of a reflector, which does something at least every ten, after which kopf is started anew
DEAF = 45.0  # seconds without an event, although the reflector tries, after which a new login and new connections are tried, too
LOST = 90.0  # seconds without an event after which a restart of the process is all that is left
_LOOK = 1.0  # seconds between two looks
_LAST_WORDS = 1.0  # seconds for a kopf of which a part ended to end, too, and say why
_PAUSES = (0.2, 1.0, 2.0)  # seconds after the first, second, ... end of kopf in a row
_SETTLED = 60.0  # seconds of running after which the next end is the first one
_AT_ONCE = 100  # events handed over before others get their turn in the controller's loop

Sink = Callable[[str, str | None, Mapping[str, Any]], None]
"""Called in the controller's loop with (resource, event type or None for a listed object, object)."""


class Watch:
    """
    Events of Services and Nodes, for as long as it runs.

    All callbacks come in the loop in which `start` was called: `sink` with each event, `listed` after each list, and `broke` when one
    of the watches, or kopf, had to begin anew.
    """

    def __init__(
        self,
        sessions: SessionFactory,
        options: WatchOptions,
        sink: Sink,
        listed: Callable[[], None],
        broke: Callable[[], None],
    ) -> None:
        self._sessions = sessions
        self._options = options
        self._sink = sink
        self._listed = listed
        self._broke = broke
        self._pulses: dict[str, Pulse] = {}
        self._run: _Run | None = None
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start; events arrive in the running loop."""
        self._pulses = {resource: Pulse.begin(time.monotonic) for resource in RESOURCES}
        self._keeping = asyncio.create_task(self._keep(), name="watch")

    async def stop(self, timeout: float) -> None:
        """End kopf and its thread; after `timeout` seconds the thread is left behind, it is a daemon."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._run is not None:
            self._run.leave()
            await asyncio.to_thread(self._run.join, timeout)

    def failure(self) -> str | None:
        """Why there are no events now, None while there are."""
        return self._failures(lambda pulse: pulse.problem())

    def lost(self) -> str | None:
        """Why there will be none without a restart of the process; None as long as there is hope."""
        return self._failures(
            lambda pulse: f"nothing for {pulse.silence():.0f} s: {pulse.reason}" if pulse.silence() > LOST else None
        )

    def _failures(self, probe: Callable[[Pulse], str | None]) -> str | None:
        if self._keeping is not None and self._keeping.done():
            return "nobody looks after the watch any more"
        found = {resource: probe(pulse) for resource, pulse in self._pulses.items()}
        return "; ".join(f"{resource}: {reason}" for resource, reason in found.items() if reason) or None

    async def _keep(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            # Of its own, since one that was left behind may wake up and go on writing into the old ones.
            self._pulses = {name: dataclasses.replace(pulse) for name, pulse in self._pulses.items()}
            run = self._run = _Run(self._sessions, self._options, self._pulses, self._sink, self._listed, self._broke)
            run.start()
            try:
                reason = await self._end_of(run)
            finally:
                run.leave()
            failures = 1 if time.monotonic() - began > _SETTLED else failures + 1
            pause = _PAUSES[min(failures, len(_PAUSES)) - 1]
            log.warning("kopf is started anew", extra={"reason": reason, "pause": pause})
            for pulse in self._pulses.values():
                pulse.fail(reason)
            self._broke()
            await asyncio.sleep(pause)

    async def _end_of(self, run: _Run) -> str:
        """Wait until nothing is to be hoped for from this run any more, and say why."""
        deaf_since = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(_LOOK):
                    await run.over.wait()
            except TimeoutError:
                pass
            else:
                return run.reason
            now = time.monotonic()
            for resource, pulse in self._pulses.items():
                if now - max(pulse.tried, deaf_since) > STUCK:
                    return f"nothing moves in the watch of {resource}"
                if now - max(pulse.heard, deaf_since) > DEAF:
                    return f"no events of {resource} for {pulse.silence():.0f} s: {pulse.reason}"


class _Run:
    """
    One life of kopf, in a thread of its own, and what it delivers (an `operator.Watcher`).

    `over` is set in the controller's loop when nothing more comes, and `reason` says why. After `leave` nothing is handed over any more,
    whether kopf ends or not.
    """

    def __init__(
        self,
        sessions: SessionFactory,
        options: WatchOptions,
        pulses: Mapping[str, Pulse],
        sink: Sink,
        listed: Callable[[], None],
        broke: Callable[[], None],
    ) -> None:
        self.pulses = pulses
        self.over = asyncio.Event()
        self.reason = ""
        self._sessions = sessions
        self._options = options
        self._sink = sink
        self._listed = listed
        self._broke = broke
        self._mailbox: collections.deque[tuple[str, str | None, Mapping[str, Any]] | None] = collections.deque()
        self._left = False
        self._loop = asyncio.get_running_loop()
        self._stop: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._live, name="kopf", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def leave(self) -> None:
        """Tell kopf to end, and believe nothing that it says from now on."""
        self._left = True
        self._stop()

    def join(self, timeout: float) -> None:
        """Wait for the end of the thread; blocks."""
        self._thread.join(timeout)

    # ---- in kopf's thread

    def _live(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
                runner.run(self._operate())
            reason = "kopf ended by itself"
        except BaseException as error:  # noqa: BLE001 - whatever ended kopf, the answer is to start another one
            reason = f"kopf ended: {type(error).__name__}: {error}"
        self._call(self._is_over, reason)

    async def _operate(self) -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def end() -> None:
            if not loop.is_closed():
                with contextlib.suppress(RuntimeError):  # closed in this very moment
                    loop.call_soon_threadsafe(stop.set)

        self._stop = end
        if not self._left:
            await operator.run(self._sessions, self._options, self, stop)

    def deliver(self, resource: str, kind: str | None, obj: Mapping[str, Any]) -> None:
        self._put((resource, kind, obj))

    def listed(self, resource: str) -> None:  # noqa: ARG002 - a list of one is a reason to compare all
        self._put(None)

    def broke(self, resource: str) -> None:  # noqa: ARG002 - its reflector has said which
        if not self._left:
            self._call(self._broke)

    def ended(self) -> None:
        # kopf's own reason is the better one, if it comes soon.
        self._call(self._loop.call_later, _LAST_WORDS, self._is_over, "a part of kopf ended, and kopf does not")

    def _put(self, message: tuple[str, str | None, Mapping[str, Any]] | None) -> None:
        self._mailbox.append(message)
        # Waking the other loop costs more than an event: of many that come together, only the first one does it.
        if len(self._mailbox) == 1:
            self._call(self._empty_mailbox)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the controller's loop is closed: nobody is there to be told
            self._loop.call_soon_threadsafe(function, *args)

    # ---- in the controller's loop

    def _is_over(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.over.set()

    def _empty_mailbox(self) -> None:
        """Hand over what has come; what comes meanwhile is handed over too, or wakes the loop again."""
        for _ in range(_AT_ONCE):
            if not self._mailbox or self._left:
                return
            try:
                self._hand_over(self._mailbox[0])
            except BaseException:
                self._mailbox.popleft()
                if self._mailbox:
                    self._loop.call_soon(self._empty_mailbox)  # the others are not to suffer
                raise
            self._mailbox.popleft()
        if self._mailbox:
            self._loop.call_soon(self._empty_mailbox)

    def _hand_over(self, message: tuple[str, str | None, Mapping[str, Any]] | None) -> None:
        if message is None:
            self._listed()
        else:
            self._sink(*message)
