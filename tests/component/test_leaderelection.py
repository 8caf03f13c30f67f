"""The elector against a Lease server in memory, on virtual time: who holds when, to the second."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import datetime as dt
import itertools
import logging
import selectors
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_lb import leaderelection
from ccm_lb.errors import ApiUnreachableError, ConflictError, ForbiddenError, NotFoundError
from ccm_lb.leaderelection import LeaseElector, LeaseLostError, Timing

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm"
EXACT = Timing(poll_jitter=0.0)
Fault = Literal["none", "refused", "reply lost", "hangs"]


async def at(seconds: float) -> None:
    await asyncio.sleep(seconds - asyncio.get_running_loop().time())


def now() -> float:
    return asyncio.get_running_loop().time()


def conflict() -> ConflictError:
    return ConflictError("it changed", status=409, reason="Conflict")


class LeaseServer:
    """One Lease behind optimistic concurrency, as the API server keeps it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self._versions = itertools.count(1)

    def get(self) -> dict[str, Any]:
        if self.lease is None:
            raise NotFoundError("no such Lease", status=404, reason="NotFound")
        return copy.deepcopy(self.lease)

    def post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise conflict()
        version = next(self._versions)
        self.lease = {**body, "metadata": {**body["metadata"], "uid": f"uid-{version}", "resourceVersion": version}}
        return copy.deepcopy(self.lease)

    def put(self, body: Mapping[str, Any]) -> dict[str, Any]:
        current = self.get()["metadata"]
        if current["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise conflict()
        if body["spec"]["leaseDurationSeconds"] < 1:
            raise ForbiddenError("leaseDurationSeconds: must be greater than 0", status=422)
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": next(self._versions)}}
        return copy.deepcopy(self.lease)

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.get()["spec"]
        return spec


class Replica:
    """A process: its clock, its way to the API, and a gate that stands for SIGSTOP and SIGCONT."""

    def __init__(self, server: LeaseServer, identity: str, timing: Timing = EXACT) -> None:
        self.server, self.fault, self.latency = server, "none", 0.0
        self.calls: list[tuple[float, str]] = []
        self.before_sleep: Callable[[], None] = lambda: None
        self.running = asyncio.Event()
        self.running.set()
        self.wall = dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)
        self.elector = LeaseElector(
            self, self, identity, "kube-system", "ccm", timing, lambda: self.wall + dt.timedelta(seconds=now())
        )

    def monotonic(self) -> float:
        return now()

    async def sleep(self, seconds: float) -> None:
        self.before_sleep()
        await asyncio.sleep(seconds)
        await self.running.wait()

    async def get(self, path: str) -> dict[str, Any]:
        assert path == PATH
        return await self._call("get", None)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path == PATH.rpartition("/")[0]
        return await self._call("post", body)

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path == PATH
        return await self._call("put", body)

    async def _call(self, verb: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        self.calls.append((now(), verb))
        fault: str = self.fault
        try:
            await asyncio.sleep(self.latency)
            if fault == "refused":
                raise ApiUnreachableError("connection refused")
            if fault == "hangs":
                await asyncio.Event().wait()
            answer: dict[str, Any] = getattr(self.server, verb)(*([] if body is None else [copy.deepcopy(body)]))
            await asyncio.sleep(self.latency)
            if fault == "reply lost":
                raise ApiUnreachableError("connection reset")
            return answer
        finally:
            await self.running.wait()


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()


async def holding(replica: Replica) -> asyncio.Task[None]:
    await replica.elector.acquire()
    return asyncio.create_task(replica.elector.hold())


async def kill(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


pytestmark = pytest.mark.looptime(start=0)


async def test_the_first_replica_creates_the_lease(server: LeaseServer) -> None:
    one = Replica(server, "one")
    await one.elector.acquire()
    assert now() == 0
    assert one.elector.holds()
    assert one.elector.held_until == 10
    assert one.elector.fencing_token == "uid-1:0"
    assert server.get()["metadata"]["namespace"] == "kube-system"
    assert server.spec == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-02T03:04:05.000678Z",
        "renewTime": "2026-01-02T03:04:05.000678Z",
        "leaseTransitions": 0,
    }


async def test_before_anything_is_known_nothing_is_held(server: LeaseServer) -> None:
    elector = Replica(server, "one").elector
    assert not elector.holds()
    assert (elector.held_until, elector.fencing_token, elector.leader) == (0, None, "")


async def test_a_holder_renews_every_two_seconds_and_keeps_its_token(server: LeaseServer) -> None:
    one = Replica(server, "one")
    task = await holding(one)
    await at(20.5)
    assert [when for when, verb in one.calls if verb == "put"] == [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    assert one.elector.held_until == 30
    assert one.elector.fencing_token == "uid-1:0"
    await kill(task)


async def test_a_follower_takes_over_at_exactly_the_expiry_it_observed(server: LeaseServer) -> None:
    one, two = Replica(server, "one"), Replica(server, "two")
    task = await holding(one)
    await at(0.7)
    takeover = asyncio.create_task(two.elector.acquire())
    await at(5)
    await kill(task)  # its last renewal, at 4, was seen at 4.7
    await takeover
    assert now() == pytest.approx(4.7 + 15, abs=1e-5)
    assert server.spec["holderIdentity"] == "two"
    assert server.spec["leaseTransitions"] == 1
    assert two.elector.fencing_token == "uid-1:1"
    assert not one.elector.holds()


async def test_a_follower_believes_no_clock_but_its_own(server: LeaseServer) -> None:
    one, two = Replica(server, "one"), Replica(server, "two")
    one.wall = dt.datetime(1999, 1, 1, tzinfo=dt.UTC)
    task = await holding(one)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await two.elector.acquire()
    assert one.elector.holds()
    await kill(task)


async def test_the_holders_own_duration_decides(server: LeaseServer) -> None:
    one = Replica(server, "one", Timing(lease_duration=60, renew_deadline=40, retry_period=5))
    two = Replica(server, "two")
    await one.elector.acquire()
    await two.elector.acquire()
    assert now() == 60


async def test_a_release_hands_over_within_a_retry_period(server: LeaseServer) -> None:
    one, two = Replica(server, "one"), Replica(server, "two")
    task = await holding(one)
    takeover = asyncio.create_task(two.elector.acquire())
    await at(9)
    await kill(task)
    await one.elector.release()
    assert not one.elector.holds()
    assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == ("", 1)
    await takeover
    assert now() == 10
    assert server.spec["leaseTransitions"] == 1


async def test_a_release_after_a_lost_reply_still_finds_its_lease(server: LeaseServer) -> None:
    one = Replica(server, "one")
    task = await holding(one)
    await at(1)
    one.fault = "reply lost"
    await at(3)
    await kill(task)
    one.fault = "none"
    await one.elector.release()
    assert server.spec["holderIdentity"] == ""


async def test_a_release_leaves_another_holder_alone(server: LeaseServer) -> None:
    one, two = Replica(server, "one"), Replica(server, "two")
    await one.elector.acquire()
    await two.elector.acquire()
    await one.elector.release()
    assert server.spec["holderIdentity"] == "two"


@pytest.mark.parametrize(("fault", "seconds"), [("refused", 0), ("reply lost", 0), ("hangs", 2)])
async def test_a_release_raises_nothing_and_takes_two_seconds_at_most(
    server: LeaseServer, fault: str, seconds: float
) -> None:
    one = Replica(server, "one")
    await one.elector.acquire()
    one.fault = fault
    await one.elector.release()
    assert now() == seconds
    assert not one.elector.holds()


@pytest.mark.parametrize("fault", ["refused", "reply lost", "hangs"])
async def test_a_holder_that_cannot_renew_stops_at_exactly_its_deadline(server: LeaseServer, fault: str) -> None:
    one = Replica(server, "one")
    task = await holding(one)
    await at(5)
    one.fault = fault
    with pytest.raises(LeaseLostError, match="not renewed for 10 s"):
        await task
    assert now() == 14
    assert one.elector.held_until == 0
    assert one.elector.fencing_token == "uid-1:0"


async def test_the_deadline_counts_from_before_the_renewal_was_sent(server: LeaseServer) -> None:
    one = Replica(server, "one")
    one.latency = 1.5
    await one.elector.acquire()
    assert now() == 4.5  # 1.5 s for a refusal, then there and back
    assert one.elector.held_until == 1.5 + 10


@pytest.mark.parametrize("fault", ["refused", "reply lost", "hangs"])
async def test_a_short_failure_of_the_api_loses_nothing(server: LeaseServer, fault: str) -> None:
    one = Replica(server, "one")
    task = await holding(one)
    await at(1)
    one.fault = fault
    await at(6.5)
    one.fault = "none"
    await at(60)
    assert not task.done()
    assert one.elector.holds()
    assert server.spec["leaseTransitions"] == 0
    await kill(task)


async def test_a_paused_holder_does_not_hold_and_renews_nothing_on_waking(server: LeaseServer) -> None:
    one, two = Replica(server, "one"), Replica(server, "two")
    task = await holding(one)
    await at(1)
    one.running.clear()
    takeover = asyncio.create_task(two.elector.acquire())
    await at(10)
    assert not one.elector.holds()
    await takeover
    sent = len(one.calls)
    one.running.set()
    with pytest.raises(LeaseLostError):
        await task
    assert len(one.calls) == sent
    assert server.spec["holderIdentity"] == "two"


async def test_a_holder_that_sees_another_stops_at_once(server: LeaseServer) -> None:
    one = Replica(server, "one")
    task = await holding(one)
    await at(3)
    stolen = server.get()
    server.put({**stolen, "spec": {**stolen["spec"], "holderIdentity": "thief"}})
    with pytest.raises(LeaseLostError, match="held by 'thief'"):
        await task
    assert now() == 4
    assert not one.elector.holds()
    assert one.elector.leader == "thief"


async def test_an_edit_by_somebody_else_is_kept_and_costs_nothing(server: LeaseServer) -> None:
    one = Replica(server, "one")
    task = await holding(one)
    await at(3)
    edited = server.get()
    server.put({**edited, "metadata": {**edited["metadata"], "labels": {"team": "a"}}})
    await at(5)
    assert one.elector.held_until == 14
    assert server.get()["metadata"]["labels"] == {"team": "a"}
    await kill(task)


async def test_a_deleted_lease_is_made_again_and_its_token_is_a_new_one(server: LeaseServer) -> None:
    one = Replica(server, "one")
    task = await holding(one)
    await at(3)
    server.lease = None
    await at(5)
    assert one.elector.holds()
    assert one.elector.fencing_token == "uid-3:0"
    await kill(task)


async def test_a_lease_that_nobody_holds_is_free_at_once(server: LeaseServer) -> None:
    server.post({"metadata": {"name": "ccm"}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 3600}})
    one = Replica(server, "one")
    await one.elector.acquire()
    assert now() == 0
    assert server.spec["leaseTransitions"] == 1


async def test_an_empty_lease_is_free_at_once(server: LeaseServer) -> None:
    server.post({"metadata": {"name": "ccm"}})
    one = Replica(server, "one")
    await one.elector.acquire()
    assert now() == 0


async def test_a_race_for_a_new_lease_has_one_winner(server: LeaseServer) -> None:
    one, two = Replica(server, "one"), Replica(server, "two")
    one.latency = two.latency = 0.1
    tasks = [asyncio.create_task(replica.elector.acquire()) for replica in (one, two)]
    await at(2)
    assert [one.elector.holds(), two.elector.holds()] == [True, False]
    assert tasks[0].done()
    await kill(tasks[1])


async def test_a_race_for_an_expired_lease_has_one_winner(server: LeaseServer) -> None:
    dead, *others = (Replica(server, name) for name in ("dead", "one", "two", "three"))
    await dead.elector.acquire()
    tasks = [asyncio.create_task(replica.elector.acquire()) for replica in others]
    await at(16)
    assert sum(replica.elector.holds() for replica in others) == 1
    assert server.spec["leaseTransitions"] == 1
    for task in tasks:
        await kill(task)


async def test_a_take_over_whose_reply_got_lost_is_found_to_have_worked(server: LeaseServer) -> None:
    one = Replica(server, "one")
    one.fault = "reply lost"
    task = asyncio.create_task(one.elector.acquire())
    await at(3)
    assert not one.elector.holds()
    one.fault = "none"
    await task
    assert now() == 4
    assert one.elector.fencing_token == "uid-1:0"


async def test_an_unreachable_api_is_waited_out_without_a_flood_of_warnings(
    server: LeaseServer, caplog: pytest.LogCaptureFixture
) -> None:
    one = Replica(server, "one")
    one.fault = "refused"
    task = asyncio.create_task(one.elector.acquire())
    with caplog.at_level(logging.INFO):
        await at(11)
        one.fault = "none"
        await task
    assert now() == 12
    assert [record.getMessage() for record in caplog.records] == [
        "could not get or renew the Lease",
        "became the leader",
    ]


async def test_the_log_tells_once_who_leads(server: LeaseServer, caplog: pytest.LogCaptureFixture) -> None:
    one, two = Replica(server, "one"), Replica(server, "two")
    task = await holding(one)
    with caplog.at_level(logging.INFO):
        takeover = asyncio.create_task(two.elector.acquire())
        await at(10)
        await kill(task)
        await one.elector.release()
        await takeover
    assert [record.getMessage() for record in caplog.records] == [
        "another replica leads",
        "released the Lease",
        "became the leader",
    ]


async def test_followers_look_early_by_chance_but_never_late(server: LeaseServer) -> None:
    one, two = Replica(server, "one"), Replica(server, "two", Timing(poll_jitter=0.5))
    task = await holding(one)
    takeover = asyncio.create_task(two.elector.acquire())
    await at(60)
    looks = [when for when, _ in two.calls]
    pauses = [after - before for before, after in itertools.pairwise(looks)]
    assert 1 <= min(pauses) < 1.5
    assert 1.5 < max(pauses) <= 2
    await kill(task)
    await kill(takeover)


async def test_without_election_the_only_replica_always_holds() -> None:
    alone = leaderelection.NoElection()
    await alone.acquire()
    assert alone.holds()
    assert alone.fencing_token is None
    hold = asyncio.create_task(alone.hold())
    await at(1000)
    assert not hold.done()
    await kill(hold)
    await alone.release()


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
