"""Leases that are free, raced for, edited or lost, and what is said of it."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from ccm_lb.kube import leaderelection
from ccm_lb.kube.leaderelection import Timing
from tests.component.kube.leaderelection.world import Fault, LeaseServer, Replica, at, holding, kill, now

pytestmark = pytest.mark.looptime(start=0)


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


@pytest.mark.parametrize(("fault", "words"), [("forbidden", "may not"), ("invalid", "must not")])
async def test_a_refused_lease_is_said_until_it_is_granted(
    server: LeaseServer, caplog: pytest.LogCaptureFixture, fault: Fault, words: str
) -> None:
    follower = Replica(server, "one")
    assert follower.elector.failure() == "not asked for yet"
    follower.fault = fault
    takeover = asyncio.create_task(follower.elector.acquire())
    await at(60)
    assert words in str(follower.elector.failure())
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once, however often it is tried"
    follower.fault = "none"
    await takeover
    assert follower.elector.failure() is None


async def test_an_unreachable_api_says_nothing_of_the_lease(server: LeaseServer) -> None:
    one, two = Replica(server, "one"), Replica(server, "two")
    task = await holding(one)
    takeover = asyncio.create_task(two.elector.acquire())
    await at(5)
    two.fault = "refused"
    await at(20)
    assert two.elector.failure() is None
    await kill(task)
    await kill(takeover)
