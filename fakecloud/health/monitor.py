"""Runs every probe that somebody wants, once, and forgets it when nobody wants it any more."""

import asyncio
import itertools
from collections.abc import Callable, Iterable

from fakecloud.health.probes import Probe
from fakecloud.health.verdicts import Result, Verdict

_UNKNOWN = Verdict()
_GOLDEN_RATIO = 0.618034


class Monitor:
    """Verdicts by probe. `refusal(address, port)` says why a connection must not be made, or None."""

    def __init__(self, refusal: Callable[[str, int], str | None]) -> None:
        self._refusal = refusal
        self._wanted: dict[Probe, int] = {}
        self._verdicts: dict[Probe, Verdict] = {}
        self._tasks: dict[Probe, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._turn = itertools.count()

    def verdict(self, probe: Probe) -> Verdict:
        return self._verdicts.get(probe, _UNKNOWN)

    def want(self, probes: Iterable[Probe]) -> None:
        """Start those that do not run yet."""
        for probe in probes:
            self._wanted[probe] = self._wanted.get(probe, 0) + 1
            if probe not in self._tasks:
                task = self._tasks[probe] = asyncio.create_task(self._watch(probe))
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    def unwant(self, probes: Iterable[Probe]) -> None:
        """End those that nobody else wants."""
        for probe in probes:
            self._wanted[probe] -= 1
            if self._wanted[probe] == 0:
                self._tasks.pop(probe).cancel()
                self._verdicts.pop(probe, None)
                del self._wanted[probe]

    async def close(self) -> None:
        """End every probe, those that nobody wants any more included."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _watch(self, probe: Probe) -> None:
        check = probe.check
        # After the first probe each waits another fraction of its interval, so that a thousand
        # load balancers created at once are not probed at once for ever.
        phase = next(self._turn) * _GOLDEN_RATIO % 1
        for pause in itertools.chain([check.interval_seconds * phase], itertools.repeat(check.interval_seconds)):
            refusal = self._refusal(probe.address, probe.port)
            result = await probe.run() if refusal is None else Result(False, refusal)
            self._verdicts[probe] = self.verdict(probe).after(
                result, healthy_threshold=check.healthy_threshold, unhealthy_threshold=check.unhealthy_threshold
            )
            await asyncio.sleep(pause)
