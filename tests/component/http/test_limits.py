"""What the transport does not send: without the Lease, or over its own limits."""

from __future__ import annotations

import asyncio

import pytest

from ccm_lb import clock
from ccm_lb.backends import changes
from ccm_lb.errors import NotLeaderError
from ccm_lb.http import pacing, transport
from ccm_lb.redaction import Secrets
from tests.component.http.world import Cloud, Fence, World, answer
from tests.component.recording import VirtualClock, serve


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_is_written_without_the_lease(world: World, method: str) -> None:
    world.fence.held = False
    with pytest.raises(NotLeaderError):
        await world.transport.request(method, world.cloud.url)
    assert world.cloud.seen == []


async def test_a_request_that_says_that_it_writes_nothing_needs_no_lease_and_is_no_change(world: World) -> None:
    world.fence.held = False
    with changes.noted() as noted:
        assert (await world.transport.request("POST", world.cloud.url, body={}, writes=False)).status == 200
    assert not noted.any


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_follower_may_read(world: World, method: str) -> None:
    world.fence.held = False
    assert (await world.transport.request(method, world.cloud.url)).status == 200


async def test_the_lease_is_looked_at_before_each_attempt(world: World) -> None:
    world.cloud.answers = [answer(502)]
    world.cloud.before_answer = lambda: setattr(world.fence, "held", False)
    with pytest.raises(NotLeaderError):
        await world.transport.request("PUT", world.cloud.url)
    assert len(world.cloud.seen) == 1


async def test_a_permit_needs_the_lease(world: World) -> None:
    async with world.transport.permit():
        pass
    world.fence.held = False
    with pytest.raises(NotLeaderError):
        async with world.transport.permit():
            pytest.fail("entered without the Lease")


async def test_requests_and_permits_share_one_limit() -> None:
    sut = transport.CloudTransport(Fence(), VirtualClock(), secrets=Secrets(), max_concurrent=2)
    cloud = Cloud()
    async with serve(cloud):
        await sut.open()
        async with sut.permit(), sut.permit():
            request = asyncio.create_task(sut.request("GET", cloud.url))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not request.done()
            assert cloud.seen == []
        assert (await request).status == 200
        await sut.close()


async def test_a_pause_that_begins_while_a_request_waits_for_its_slot_holds_for_it_too() -> None:
    """On the real clock, whose time does not pass just because somebody sleeps."""
    loop, cloud, arrivals = asyncio.get_running_loop(), Cloud(), list[float]()
    cloud.answers = [answer(429, "1"), answer(200)]
    cloud.before_answer = lambda: arrivals.append(loop.time())
    sut = transport.CloudTransport(Fence(), clock.SystemClock(), secrets=Secrets(), max_concurrent=1)
    async with serve(cloud):
        await sut.open()
        await asyncio.gather(sut.request("GET", cloud.url), sut.request("GET", cloud.url))
        await sut.close()
    assert arrivals[1] - arrivals[0] >= 1.0


async def test_the_lease_lost_while_waiting_for_a_slot_is_noticed() -> None:
    fence = Fence()
    sut = transport.CloudTransport(fence, VirtualClock(), secrets=Secrets(), max_concurrent=1)
    async with sut.permit():
        request = asyncio.create_task(sut.request("PUT", "http://127.0.0.1:9/"))
        await asyncio.sleep(0)
        fence.held = False
    with pytest.raises(NotLeaderError):
        await request


async def test_a_token_bucket_gives_the_burst_at_once_and_then_one_a_time() -> None:
    virtual = VirtualClock()
    bucket = pacing.TokenBucket(rate=10, burst=3, clock=virtual)
    for _ in range(5):
        await bucket.take()
    assert virtual.slept == [pytest.approx(0.1), pytest.approx(0.1)]
