"""What the holder of the Lease is at, Service by Service: what only it knows, in the words that `ccm-lb status` shows."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, NamedTuple

from ccm_lb.controller.workqueue import Workqueue
from ccm_lb.objects import Key


class Outcome(enum.StrEnum):
    """How the last attempt ended, where it did not end well."""

    FAILED = "failed"  # it is tried again after a backoff
    REFUSED = "refused"  # it is of no use until the Service changes
    WAITING = "waiting"  # the cloud needs more time


class Trouble(NamedTuple):
    """One attempt that did not end well, and the words for it."""

    outcome: Outcome
    reason: str


class Work:
    """Remembers the last trouble of each Service, until an attempt ends well."""

    def __init__(self, queue: Workqueue[Key]) -> None:
        self._queue = queue
        self._troubles: dict[Key, Trouble] = {}

    def ended_well(self, key: Key) -> None:
        self._troubles.pop(key, None)

    def ended(self, key: Key, outcome: Outcome, reason: str) -> None:
        self._troubles[key] = Trouble(outcome, reason)

    def report(self, redacted: Callable[[str], str]) -> dict[str, Any]:
        """
        The Services that wait, are worked on, or are in trouble, and how long the queue is; no reason leaves it but `redacted`.

        The keys are part of a promise: `ccm-lb status` of another version reads them. Times are in seconds.
        """
        waits = {key: self._queue.wait(key) for key in sorted({*self._queue.busy(), *self._troubles})}
        services = []
        for key, wait in waits.items():
            trouble = self._troubles.get(key)
            services.append(
                {
                    "service": str(key),
                    "outcome": trouble and str(trouble.outcome),
                    "reason": trouble and redacted(trouble.reason),
                    "failures": self._queue.failures(key),
                    "queuedSeconds": _rounded(wait.queued),
                    "workingSeconds": _rounded(wait.working),
                    "retryInSeconds": _rounded(wait.delay),
                }
            )
        oldest = max((wait.queued for wait in waits.values() if wait.queued is not None), default=0.0)
        return {"queue": {"length": len(self._queue), "oldestSeconds": _rounded(oldest)}, "services": services}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
