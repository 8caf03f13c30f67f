"""The queue's guarantees, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from ccm_lb.controller.workqueue import QueueClosedError, Workqueue

pytestmark = pytest.mark.looptime


class Seen:
    """What the queue told about itself."""

    def __init__(self) -> None:
        self.depths: list[int] = []
        self.queued: list[float] = []
        self.worked: list[float] = []
        self.adds = 0
        self.retries = 0

    def depth(self, n: int) -> None:
        self.depths.append(n)

    def added(self) -> None:
        self.adds += 1

    def started(self, queued_seconds: float) -> None:
        self.queued.append(queued_seconds)

    def finished(self, work_seconds: float) -> None:
        self.worked.append(work_seconds)

    def retried(self) -> None:
        self.retries += 1


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def queue(seen: Seen) -> Workqueue[str]:
    return Workqueue(seen)


async def taken(queue: Workqueue[str]) -> list[str]:
    """What can be had without waiting; it stays in work."""
    keys = []
    while len(queue):
        keys.append(await queue.get())
    return keys


async def wait_for(queue: Workqueue[str]) -> float:
    """Seconds until the queue gives out a key; the key is done at once."""
    began = asyncio.get_running_loop().time()
    queue.done(await queue.get())
    return asyncio.get_running_loop().time() - began


# ---- order and uniqueness


async def test_first_come_first_served(queue: Workqueue[str]) -> None:
    for key in ("c", "a", "b"):
        queue.add(key)
    assert await taken(queue) == ["c", "a", "b"]


async def test_a_key_waits_only_once(queue: Workqueue[str]) -> None:
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert await taken(queue) == ["a", "b"]


async def test_a_key_in_work_is_not_given_out_again(queue: Workqueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert len(queue) == 0


async def test_a_key_added_while_in_work_comes_again_once_it_is_done(queue: Workqueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    queue.done("a")
    assert await taken(queue) == ["a"]


async def test_a_key_that_is_done_does_not_come_again_by_itself(queue: Workqueue[str]) -> None:
    queue.add("a")
    queue.done(await queue.get())
    assert (len(queue), queue.idle("a")) == (0, True)


async def test_get_waits_for_work(queue: Workqueue[str]) -> None:
    asyncio.get_running_loop().call_later(7, queue.add, "a")
    assert await wait_for(queue) == 7


async def test_each_key_goes_to_one_of_the_workers_that_wait(queue: Workqueue[str]) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    for key in ("a", "b", "c"):
        queue.add(key)
    assert sorted(await asyncio.gather(*waiting)) == ["a", "b", "c"]


async def test_a_worker_that_is_cancelled_while_it_waits_takes_no_key_along(queue: Workqueue[str]) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await asyncio.wait_for(queue.get(), 1) == "a"


# ---- delays


async def test_the_backoff_doubles_from_5_to_300_seconds(queue: Workqueue[str]) -> None:
    delays = []
    for _ in range(9):
        said = queue.add_rate_limited("a")
        assert await wait_for(queue) == said
        delays.append(said)
    assert delays == [5, 10, 20, 40, 80, 160, 300, 300, 300]


async def test_the_backoff_can_begin_and_end_elsewhere(seen: Seen) -> None:
    queue: Workqueue[str] = Workqueue(seen, base_delay=1, max_delay=3)
    delays = []
    for _ in range(4):
        delays.append(queue.add_rate_limited("a"))
        await wait_for(queue)
    assert delays == [1, 2, 3, 3]


async def test_a_very_long_series_of_failures_stays_at_the_longest(queue: Workqueue[str]) -> None:
    for _ in range(2000):
        delay = queue.add_rate_limited("a")
        queue.add("a")
        queue.done(await queue.get())
    assert delay == 300
    assert queue.failures("a") == 2000


async def test_forget_sets_the_backoff_back(queue: Workqueue[str]) -> None:
    queue.add_rate_limited("a")
    queue.add_rate_limited("a")
    queue.forget("a")
    queue.forget("never-failed")
    assert queue.failures("a") == 0
    assert queue.add_rate_limited("a") == 5


async def test_each_key_has_its_own_backoff(queue: Workqueue[str]) -> None:
    queue.add_rate_limited("a")
    assert queue.add_rate_limited("a") == 10
    assert queue.add_rate_limited("b") == 5


async def test_a_key_in_a_delay_is_not_in_the_way_of_others(queue: Workqueue[str]) -> None:
    queue.add_rate_limited("a")
    queue.add("b")
    assert await taken(queue) == ["b"]


async def test_the_longest_pause_is_one_of_300_seconds_and_no_failure(queue: Workqueue[str]) -> None:
    assert queue.add_at_longest("a") == 300
    assert queue.failures("a") == 0
    assert await wait_for(queue) == 300


async def test_add_ends_a_delay_at_once(queue: Workqueue[str]) -> None:
    queue.add_rate_limited("a")
    queue.add("a")
    assert await wait_for(queue) == 0
    await asyncio.sleep(60)
    assert len(queue) == 0


async def test_of_two_delays_the_shorter_one_counts(queue: Workqueue[str]) -> None:
    queue.add_after("a", 50)
    queue.add_after("a", 20)
    queue.add_after("a", 90)
    assert await wait_for(queue) == 20
    await asyncio.sleep(100)
    assert len(queue) == 0


@pytest.mark.parametrize("delay", [0, -1])
async def test_no_delay_is_now(queue: Workqueue[str], delay: float) -> None:
    queue.add_after("a", delay)
    assert len(queue) == 1


async def test_a_delay_does_not_hold_up_a_key_that_waits_already(queue: Workqueue[str]) -> None:
    queue.add("a")
    queue.add_after("a", 50)
    assert await wait_for(queue) == 0
    await asyncio.sleep(60)
    assert len(queue) == 0


async def test_a_delay_that_ends_during_the_work_waits_for_its_end(queue: Workqueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add_after("a", 5)
    await asyncio.sleep(10)
    assert len(queue) == 0
    queue.done("a")
    assert await taken(queue) == ["a"]


@pytest.mark.parametrize("state", ["waiting", "in-work", "delayed"])
async def test_a_key_is_idle_only_when_nothing_is_planned_for_it(queue: Workqueue[str], state: str) -> None:
    assert queue.idle("a")
    if state == "delayed":
        queue.add_after("a", 5)
    else:
        queue.add("a")
    if state == "in-work":
        await queue.get()
    assert not queue.idle("a")


# ---- the end


async def test_shut_down_ends_every_wait(queue: Workqueue[str]) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.shut_down()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [QueueClosedError] * 3


async def test_after_shut_down_nothing_is_given_out_or_taken(queue: Workqueue[str]) -> None:
    queue.add("waits")
    queue.add_after("delayed", 5)
    queue.shut_down()
    queue.add("new")
    queue.add_after("new-delayed", 5)
    await asyncio.sleep(60)
    for _ in range(3):
        with pytest.raises(QueueClosedError):
            await queue.get()


async def test_work_that_is_under_way_may_end_after_shut_down(queue: Workqueue[str]) -> None:
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.shut_down()
    queue.done("a")
    with pytest.raises(QueueClosedError):
        await queue.get()


# ---- what metrics are told


async def test_times_are_counted_from_add_to_get_and_from_get_to_done(queue: Workqueue[str], seen: Seen) -> None:
    queue.add("a")
    await asyncio.sleep(3)
    await queue.get()
    await asyncio.sleep(4)
    queue.done("a")
    assert (seen.queued, seen.worked) == ([3], [4])


async def test_a_delay_is_no_time_in_the_queue(queue: Workqueue[str], seen: Seen) -> None:
    queue.add_rate_limited("a")
    await queue.get()
    assert (seen.queued, seen.retries, seen.adds) == ([0], 1, 1)


async def test_the_depth_is_that_of_the_keys_that_wait_for_a_worker(queue: Workqueue[str], seen: Seen) -> None:
    queue.add("a")
    queue.add("b")
    await queue.get()
    assert seen.depths == [1, 2, 1]
    assert seen.adds == 2
