"""The transport against a real HTTP server: what it repeats, when it waits, what it refuses to send."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import email.utils
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest
from aiohttp import test_utils, web

from ccm_lb import clock, pacing, transport
from ccm_lb.errors import CloudUnreachableError, NotLeaderError, RetryAfterError
from tests.controlplane.server import free_ports


class VirtualClock:
    """Sleeping takes no time and is written down."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Fence:
    def __init__(self) -> None:
        self.held = True
        self.fencing_token: str | None = "uid:7"

    def holds(self) -> bool:
        return self.held


CUT = web.Response(status=599)


class Cloud:
    """Answers in order, the last answer for ever; `CUT` drops the connection instead."""

    def __init__(self) -> None:
        self.answers: list[web.Response] = [web.json_response({"ok": True})]
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.before_answer: Callable[[], None] = lambda: None
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        self.before_answer()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is CUT:
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


def answer(status: int, retry_after: str | None = None, date: str | None = None) -> web.Response:
    headers = {name: value for name, value in (("Retry-After", retry_after), ("Date", date)) if value is not None}
    return web.Response(status=status, headers=headers)


class World(NamedTuple):
    cloud: Cloud
    fence: Fence
    clock: VirtualClock
    transport: transport.CloudTransport
    metrics: list[tuple[str, str]]


@contextlib.asynccontextmanager
async def serve(cloud: Cloud) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cloud.answer)
    async with test_utils.TestServer(app) as server:
        cloud.url = str(server.make_url(""))
        yield


@pytest.fixture
async def world() -> AsyncIterator[World]:
    cloud, fence, virtual = Cloud(), Fence(), VirtualClock()
    metrics: list[tuple[str, str]] = []
    sut = transport.CloudTransport(fence, virtual, observer=lambda method, code, _: metrics.append((method, code)))
    async with serve(cloud):
        await sut.open()
        yield World(cloud, fence, virtual, sut, metrics)
        await sut.close()


async def test_a_request_carries_its_body_as_json_and_names_its_sender(world: World) -> None:
    response = await world.transport.request(
        "POST", world.cloud.url + "/v1/x?a=1", body={"n": [1]}, params={"b": "2"}, headers={"Fencing-Token": "t"}
    )
    request = world.cloud.seen[0]
    assert (response.status, response.json()) == (200, {"ok": True})
    assert world.cloud.bodies == [b'{"n": [1]}']
    assert request.content_type == "application/json"
    assert request.headers["User-Agent"].startswith("ccm-lb/")
    assert request.headers["Fencing-Token"] == "t"
    assert request.query_string == "a=1&b=2"
    assert world.metrics == [("POST", "200")]


async def test_the_fencing_token_is_the_backends_to_put_on(world: World) -> None:
    await world.transport.request("PUT", world.cloud.url)
    assert "Fencing-Token" not in world.cloud.seen[0].headers
    assert world.transport.fencing_token == "uid:7"


@pytest.mark.parametrize(
    ("method", "idempotent", "status", "sent"),
    [
        pytest.param("GET", None, 503, 3, id="a read is repeated"),
        pytest.param("PUT", None, 502, 3, id="a PUT is repeated"),
        pytest.param("DELETE", None, 504, 3, id="a DELETE is repeated"),
        pytest.param("POST", None, 503, 1, id="a POST is not repeated"),
        pytest.param("PATCH", None, 503, 1, id="a PATCH is not repeated"),
        pytest.param("POST", True, 503, 3, id="a POST with a key of its own is repeated"),
        pytest.param("PUT", False, 503, 1, id="a PUT that the backend calls unsafe is not repeated"),
        pytest.param("GET", None, 500, 1, id="a 500 is an answer"),
        pytest.param("GET", None, 404, 1, id="a 404 is an answer"),
        pytest.param("GET", None, 302, 1, id="a redirect is an answer"),
    ],
)
async def test_what_may_be_repeated_is(
    world: World, method: str, *, idempotent: bool | None, status: int, sent: int
) -> None:
    world.cloud.answers = [answer(status)]
    response = await world.transport.request(method, world.cloud.url, idempotent=idempotent)
    assert response.status == status
    assert len(world.cloud.seen) == sent
    assert all(0.2 <= pause <= 2 for pause in world.clock.slept)


async def test_a_repeated_request_returns_the_good_answer(world: World) -> None:
    world.cloud.answers = [answer(502), CUT, answer(204)]
    response = await world.transport.request("PUT", world.cloud.url, body={})
    assert (response.status, response.json()) == (204, None)
    assert world.metrics == [("PUT", "502"), ("PUT", "error"), ("PUT", "204")]


async def test_no_attempt_begins_when_the_first_one_took_long(world: World) -> None:
    world.cloud.answers = [CUT]
    world.cloud.before_answer = lambda: setattr(world.clock, "now", world.clock.now + transport.RETRY_WINDOW)
    with pytest.raises(CloudUnreachableError):
        await world.transport.request("GET", world.cloud.url)
    assert len(world.cloud.seen) == 1


async def test_a_request_that_must_not_be_repeated_is_sent_once_also_when_it_is_a_put(world: World) -> None:
    world.cloud.answers = [CUT]
    with pytest.raises(CloudUnreachableError, match="cut"):
        await world.transport.request("PUT", world.cloud.url, body={}, idempotent=False)
    assert len(world.cloud.seen) == 1


async def test_a_cut_connection_names_the_request_and_hides_its_secrets(world: World) -> None:
    world.cloud.answers = [CUT]
    url = world.cloud.url.replace("//", "//user:password@") + "/v1/x?token=geheim"
    with pytest.raises(CloudUnreachableError) as caught:
        await world.transport.request("POST", url)
    assert "POST http://127.0.0.1:" in str(caught.value)
    assert "/v1/x" in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert "password" not in str(caught.value)
    assert len(world.cloud.seen) == 1


async def test_an_answer_that_is_not_http_hides_the_secrets_too(world: World) -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(CloudUnreachableError) as caught:
            await world.transport.request("POST", f"http://127.0.0.1:{port}/?token=geheim")
    assert "geheim" not in str(caught.value)


async def test_nothing_listens_is_said_with_the_address(world: World) -> None:
    port = free_ports(1)[0]
    with pytest.raises(CloudUnreachableError, match=f"GET http://127.0.0.1:{port}/v1: .*Connect call failed"):
        await world.transport.request("GET", f"http://127.0.0.1:{port}/v1")
    assert world.metrics == [("GET", "error")] * 3


async def test_a_silent_cloud_is_given_up_after_the_timeout() -> None:
    silence = asyncio.Event()

    async def hang(_: web.BaseRequest) -> web.Response:
        await silence.wait()
        return web.Response()

    sut = transport.CloudTransport(Fence(), VirtualClock(), timeout=0.05)
    async with test_utils.RawTestServer(hang) as server:
        await sut.open()
        with pytest.raises(CloudUnreachableError, match=r"no answer within 0\.05 s"):
            await sut.request("POST", str(server.make_url("/")))
        await sut.close()
        silence.set()


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
    sut = transport.CloudTransport(Fence(), clock.SystemClock(), observer=lambda *_: refused.set())
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


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_is_written_without_the_lease(world: World, method: str) -> None:
    world.fence.held = False
    with pytest.raises(NotLeaderError):
        await world.transport.request(method, world.cloud.url)
    assert world.cloud.seen == []


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
    sut = transport.CloudTransport(Fence(), VirtualClock(), max_concurrent=2)
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
    sut = transport.CloudTransport(Fence(), clock.SystemClock(), max_concurrent=1)
    async with serve(cloud):
        await sut.open()
        await asyncio.gather(sut.request("GET", cloud.url), sut.request("GET", cloud.url))
        await sut.close()
    assert arrivals[1] - arrivals[0] >= 1.0


async def test_the_lease_lost_while_waiting_for_a_slot_is_noticed() -> None:
    fence = Fence()
    sut = transport.CloudTransport(fence, VirtualClock(), max_concurrent=1)
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
