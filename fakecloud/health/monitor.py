"""Runs every probe that somebody wants, once, and forgets it when nobody wants it any more."""

import asyncio
import itertools
from collections.abc import Callable, Iterable

from fakecloud.health.probes import Probe
from fakecloud.health.verdicts import Result, Verdict

_GOLDEN_RATIO = 0.618034


class Watched:
    """A probe's present verdict; kept at hand by whoever chooses targets, for every connection."""

    __slots__ = ("probe", "task", "verdict", "wanted")

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.verdict = Verdict()
        self.wanted = 0
        self.task: asyncio.Task[None] | None = None


class Monitor:
    """
    Verdicts by probe, `at_once` of which run at a time: each needs a file descriptor.

    `refusal(address, port)` says why a connection must not be made, or None.
    """

    def __init__(
        self,
        refusal: Callable[[str, int], str | None],
        on_change: Callable[[], None] = lambda: None,
        at_once: int = 2**16,
    ) -> None:
        self._refusal = refusal
        self._on_change = on_change
        self._watched: dict[Probe, Watched] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._turn = itertools.count()
        self._slots = asyncio.Semaphore(at_once)
        # Grows whenever a target comes or goes by its health; who has seen the number need not look again.
        self.changes = 0

    def watched(self, probe: Probe) -> Watched:
        """A probe that is wanted; for any other one the verdict stays unknown."""
        return self._watched.get(probe) or Watched(probe)

    def want(self, probes: Iterable[Probe]) -> None:
        """Start those that do not run yet."""
        for probe in probes:
            watched = self._watched.setdefault(probe, Watched(probe))
            watched.wanted += 1
            if watched.task is None:
                watched.task = asyncio.create_task(self._watch(watched))
                self._running.add(watched.task)
                watched.task.add_done_callback(self._running.discard)

    def unwant(self, probes: Iterable[Probe]) -> None:
        """End those that nobody else wants."""
        for probe in probes:
            watched = self._watched[probe]
            watched.wanted -= 1
            if watched.wanted == 0:
                del self._watched[probe]
                if watched.task is not None:
                    watched.task.cancel()

    async def close(self) -> None:
        """End every probe, those that nobody wants any more included."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _watch(self, watched: Watched) -> None:
        probe, check = watched.probe, watched.probe.check
        # After the first probe each waits another fraction of its interval, so that a thousand
        # load balancers created at once are not probed at once for ever.
        phase = next(self._turn) * _GOLDEN_RATIO % 1
        for pause in itertools.chain([check.interval_seconds * phase], itertools.repeat(check.interval_seconds)):
            refusal = self._refusal(probe.address, probe.port)
            if refusal is None:
                async with self._slots:
                    result = await probe.run()
            else:
                result = Result(False, refusal)
            before = watched.verdict
            watched.verdict = before.after(
                result, healthy_threshold=check.healthy_threshold, unhealthy_threshold=check.unhealthy_threshold
            )
            if watched.verdict.usable is not before.usable:
                self.changes += 1
                self._on_change()
            await asyncio.sleep(pause)
