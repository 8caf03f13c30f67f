"""Who takes over, renews, releases and stops when: on virtual time, to the second."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest

from ccm_lb.kube.leaderelection import LeaseLostError, Timing
from tests.component.kube.leaderelection.world import LeaseServer, Replica, at, holding, kill, now

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
