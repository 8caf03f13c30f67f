"""When the transport waits because the cloud asked for it."""

from __future__ import annotations

import asyncio
import datetime as dt
import email.utils

import pytest

from ccm_lb import clock
from ccm_lb.errors import RetryAfterError
from ccm_lb.http import pacing, transport
from ccm_lb.redaction import Secrets
from tests.component.http.world import Cloud, Fence, World, answer
from tests.component.recording import VirtualClock, serve


async def test_a_pause_that_the_cloud_asks_for_is_kept_to_the_second(world: World) -> None:
    world.cloud.answers = [answer(429, "3"), answer(200)]
    response = await world.transport.request("POST", world.cloud.url, body={})
    assert response.status == 200
    assert sum(world.clock.slept) == 3.0


async def test_a_pause_given_as_a_date_is_measured_by_the_clouds_own_clock(world: World) -> None:
    at = dt.datetime(2001, 1, 1, tzinfo=dt.UTC)
    until = email.utils.format_datetime(at + dt.timedelta(seconds=4), usegmt=True)
    world.cloud.answers = [answer(429, until, email.utils.format_datetime(at, usegmt=True)), answer(200)]
    await world.transport.request("GET", world.cloud.url)
    assert sum(world.clock.slept) == 4.0


async def test_a_long_pause_is_handed_back_with_what_is_left_of_it(world: World) -> None:
    world.cloud.answers = [answer(429, "60"), answer(200)]
    with pytest.raises(RetryAfterError) as caught:
        await world.transport.request("POST", world.cloud.url, body={})
    assert caught.value.delay == 60.0
    assert world.clock.slept == [0.0]


async def test_a_pause_holds_for_all_requests_to_that_cloud_and_no_other(world: World) -> None:
    other = Cloud()
    world.cloud.answers = [answer(429, "60"), answer(200)]
    with pytest.raises(RetryAfterError):
        await world.transport.request("GET", world.cloud.url)
    world.clock.now += 20
    with pytest.raises(RetryAfterError) as caught:
        await world.transport.request("GET", world.cloud.url + "/elsewhere")
    assert caught.value.delay == 40.0
    assert len(world.cloud.seen) == 1
    async with serve(other):
        assert (await world.transport.request("GET", other.url)).status == 200
    world.clock.now += 40
    assert (await world.transport.request("GET", world.cloud.url)).status == 200


async def test_nobody_sends_before_the_pause_ends_and_those_who_waited_come_one_by_one() -> None:
    """On the real clock: the point is the order of real arrivals."""
    loop, cloud, arrivals, refused = asyncio.get_running_loop(), Cloud(), list[float](), asyncio.Event()
    cloud.answers = [answer(429, "1"), answer(200)]
    cloud.before_answer = lambda: arrivals.append(loop.time())
    sut = transport.CloudTransport(Fence(), clock.SystemClock(), secrets=Secrets(), observer=lambda *_: refused.set())
    async with serve(cloud):
        await sut.open()
        first = asyncio.create_task(sut.request("GET", cloud.url))
        await refused.wait()
        await asyncio.gather(first, *(sut.request("GET", cloud.url) for _ in range(5)))
        await sut.close()
    refused_at, *waited = arrivals
    assert len(waited) == 6
    assert waited[0] - refused_at >= 1.0
    assert waited[-1] - waited[0] >= 4 * pacing.SPREAD


async def test_a_429_without_a_time_pauses_for_a_second(world: World) -> None:
    world.cloud.answers = [answer(429)]
    with pytest.raises(RetryAfterError) as caught:
        await world.transport.request("GET", world.cloud.url)
    assert caught.value.delay == transport.UNSAID_PAUSE
    assert len(world.cloud.seen) == 3


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", "", "²"])
def test_a_retry_after_that_says_nothing_is_none(value: str) -> None:
    assert pacing.retry_after({"Retry-After": value}) is None


def test_a_date_that_is_past_means_now() -> None:
    assert pacing.retry_after({"Retry-After": "Mon, 01 Jan 2001 00:00:00 GMT"}) == 0.0


async def test_a_single_header_does_not_silence_the_controller_for_a_day() -> None:
    hold = pacing.Hold(VirtualClock())
    hold.extend(86400)
    assert hold.remaining() == pacing.LONGEST_HOLD


async def test_a_busy_cloud_that_names_a_time_is_waited_for_before_a_read(world: World) -> None:
    world.cloud.answers = [answer(503, "4"), answer(200)]
    assert (await world.transport.request("GET", world.cloud.url)).status == 200
    assert sum(world.clock.slept) == pytest.approx(4.0)


async def test_a_busy_cloud_that_names_a_time_is_not_asked_to_create_twice(world: World) -> None:
    world.cloud.answers = [answer(503, "2")]
    with pytest.raises(RetryAfterError) as caught:
        await world.transport.request("POST", world.cloud.url, body={})
    assert caught.value.delay == 2.0
    assert len(world.cloud.seen) == 1
