"""Two replicas under whatever may happen to them, on virtual time: never do both hold."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import selectors
from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_lb.kube.leaderelection import LeaseElector, LeaseLostError
from tests.component.kube.leaderelection.world import LeaseServer, Replica, at, kill

pytestmark = pytest.mark.looptime(start=0)


@dataclasses.dataclass(frozen=True)
class Blow:
    """From `start` on, for `seconds`, the API of a replica fails, is slow, or the process stands still, or it is restarted."""

    replica: int
    start: float
    seconds: float
    kind: Literal["refused", "reply lost", "hangs", "slow", "paused", "restarted", "released"]


BLOWS = st.builds(
    Blow,
    st.integers(0, 1),
    st.floats(0, 80, width=16),
    st.floats(0.5, 40, width=16),
    st.sampled_from(["refused", "reply lost", "hangs", "slow", "paused", "restarted", "released"]),
)


@pytest.mark.looptime(False)
@settings(max_examples=60, deadline=None)
@given(blows=st.lists(BLOWS, max_size=8), offset=st.floats(0, 3, width=16))
def test_two_replicas_never_hold_at_once_whatever_happens(blows: list[Blow], offset: float) -> None:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        runner.run(contend(blows, offset))


class JumpingLoop(asyncio.SelectorEventLoop):
    """Virtual time without looptime's care for real I/O, of which there is none here: 30 times as fast."""

    def __init__(self) -> None:
        self._selector_that_jumps = JumpingSelector()
        super().__init__(self._selector_that_jumps)

    def time(self) -> float:
        return self._selector_that_jumps.now


class JumpingSelector(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


async def contend(blows: list[Blow], offset: float) -> None:
    server, takings = LeaseServer(), 0

    def check() -> None:
        # An elector goes to sleep right after each taking and renewal, and only these make it a holder.
        nonlocal takings
        holders = [elector for life in lives for elector in life.electors if elector.holds()]
        assert len(holders) <= 1
        takings += len(holders)

    lives = [Life(server, "one", check), Life(server, "two", check)]
    tasks = [asyncio.create_task(lives[0].live(0)), asyncio.create_task(lives[1].live(offset))]
    tasks += [asyncio.create_task(lives[blow.replica].suffer(blow)) for blow in blows]
    await at(150)
    assert takings > 0
    # Left in peace for long enough (the last blow ends at 120 s), somebody works.
    assert any(elector.holds() for life in lives for elector in life.electors)
    for task in tasks:
        assert not task.done() or task.exception() is None
        await kill(task)


class Life:
    """A replica that is started again whenever it ends; the electors of its former lives are still looked at."""

    def __init__(self, server: LeaseServer, name: str, check: Callable[[], None]) -> None:
        self._server, self._check, self._names = server, check, (f"{name}-{n}" for n in itertools.count())
        self.electors: list[LeaseElector] = []
        self._start()

    def _start(self) -> None:
        self.replica = Replica(self._server, next(self._names))
        self.replica.before_sleep = self._check
        self.electors.append(self.replica.elector)
        self._task: asyncio.Task[None] | None = None

    async def live(self, offset: float) -> None:
        await asyncio.sleep(offset)
        while True:
            self._task = asyncio.create_task(self._run(self.replica.elector))
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()
            self._start()

    async def _run(self, elector: LeaseElector) -> None:
        await elector.acquire()
        try:
            await elector.hold()
        except LeaseLostError:
            await elector.release()

    async def suffer(self, blow: Blow) -> None:
        await at(blow.start)
        replica, task = self.replica, self._task
        await self._strike(blow, replica, task)
        await asyncio.sleep(blow.seconds)
        replica.running.set()
        replica.fault, replica.latency = "none", 0.0

    async def _strike(self, blow: Blow, replica: Replica, task: asyncio.Task[None] | None) -> None:
        if blow.kind == "paused":
            replica.running.clear()
        elif blow.kind == "slow":
            replica.latency = blow.seconds / 8
        elif blow.kind in ("refused", "reply lost", "hangs"):
            replica.fault = blow.kind
        elif task is not None:
            task.cancel()
            if blow.kind == "released":
                await replica.elector.release()
