"""Every fault of the proxy, against a small server that is known to be right."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from tests.faultproxy import (
    Act,
    Answer,
    Cut,
    Delay,
    DropField,
    DuplicateEvents,
    Exchange,
    FaultProxy,
    HoldEvents,
    InjectError,
    Match,
    ReorderEvents,
    Rule,
    Stall,
)

WATCH = {"watch": "true"}
IP_MODE = "status.loadBalancer.ingress[].ipMode"


class Upstream:
    """Answers PUT /echo with what it got, GET /item with an object, and a watch with what the test sends."""

    def __init__(self) -> None:
        self.url = ""
        self.taken: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.watchers: list[web.StreamResponse] = []
        self.left = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.taken.append((request.method, request.raw_path, body))
        self.headers.append(dict(request.headers))
        if request.query.get("watch"):
            return await self._watch(request)
        if request.method == "GET":
            return web.json_response({"status": {"loadBalancer": {"ingress": [{"ip": "127.84.0.1", "ipMode": "VIP"}]}}})
        return web.Response(body=body, content_type="application/json", status=201)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.watchers.append(response)
        try:
            await asyncio.Event().wait()
        finally:
            self.left += 1
        return response

    async def send(self, *names: str) -> None:
        for name in names:
            await self.watchers[-1].write(json.dumps(event(name)).encode() + b"\n")


def event(name: str, mode: str | None = None) -> dict[str, Any]:
    status = {"loadBalancer": {"ingress": [{"ip": "127.84.0.1", **({"ipMode": mode} if mode else {})}]}}
    return {"type": "MODIFIED", "object": {"metadata": {"name": name}, "status": status}}


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    server = Upstream()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.05, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def proxy(upstream: Upstream) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(upstream.url) as served:
        yield served


@pytest.fixture
async def session(proxy: FaultProxy) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(proxy.url, connector=aiohttp.TCPConnector(force_close=True)) as client:
        yield client


@contextlib.asynccontextmanager
async def watching(session: aiohttp.ClientSession, upstream: Upstream) -> AsyncIterator[aiohttp.ClientResponse]:
    before = len(upstream.watchers)
    async with session.get("/api/v1/services", params=WATCH) as answer:
        await reach(lambda: len(upstream.watchers) > before)
        yield answer


async def reach(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


async def names(answer: aiohttp.ClientResponse, count: int) -> list[str]:
    async with asyncio.timeout(30):
        return [json.loads(await answer.content.readline())["object"]["metadata"]["name"] for _ in range(count)]


async def silent(answer: aiohttp.ClientResponse) -> bool:
    """Nothing comes within a moment that is long for a loopback connection; a proxy that leaks would be seen most times."""
    try:
        await asyncio.wait_for(answer.content.readany(), 0.1)
    except TimeoutError:
        return True
    return False


async def test_a_request_passes_unchanged_and_is_logged(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    headers = {"Authorization": "Bearer secret", "User-Agent": "probe/1"}
    async with session.put("/echo/a%2Fb?x=1&x=2", json={"a": 1}, headers=headers) as answer:
        assert (answer.status, await answer.json()) == (201, {"a": 1})
    assert upstream.taken == [("PUT", "/echo/a%2Fb?x=1&x=2", b'{"a": 1}')]
    assert upstream.headers[0]["Authorization"] == "Bearer secret"
    assert "Accept-Encoding" not in upstream.headers[0], "a compressed answer could not be changed"
    (seen,) = proxy.requests
    assert (seen.number, seen.method, seen.path, seen.json) == (1, "PUT", "/echo/a/b", {"a": 1})
    assert (seen.request.user_agent, seen.status, seen.outcome, seen.forwarded) == ("probe/1", 201, "passed", True)


async def test_watch_events_arrive_one_by_one(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    async with watching(session, upstream) as answer:
        for name in ("a", "b"):
            await upstream.send(name)
            assert await names(answer, 1) == [name]
        assert [one.path for one in proxy.open()] == ["/api/v1/services"]


async def test_a_watch_that_the_client_leaves_is_left_by_the_proxy(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    async with watching(session, upstream) as answer:
        answer.close()
    await reach(lambda: upstream.left == 1 and proxy.requests[0].outcome == "client gone")


@pytest.mark.parametrize(("applied", "taken"), [(False, 0), (True, 1)])
async def test_a_cut_request_gets_no_answer(
    proxy: FaultProxy,
    upstream: Upstream,
    session: aiohttp.ClientSession,
    *,
    applied: bool,
    taken: int,
) -> None:
    proxy.add(Rule(Cut(applied=applied), Match(method="PATCH")))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await session.patch("/echo", json={})
    assert len(upstream.taken) == taken
    assert (proxy.requests[0].outcome, proxy.requests[0].status) == ("cut", None)


async def test_a_reset_is_seen_as_a_reset(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
    proxy.add(Rule(Cut(reset=True)))
    with pytest.raises(aiohttp.ClientOSError, match="Connection reset by peer"):
        await session.put("/echo", json={})


async def test_an_answer_is_cut_after_n_bytes(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
    proxy.add(Rule(Cut(after_bytes=4)))
    async with session.put("/echo", data=b"0123456789") as answer:
        assert await answer.content.readexactly(4) == b"0123"
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()
    assert proxy.requests[0].passed_bytes == 4


async def test_a_watch_is_cut_in_the_middle_of_an_event(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    proxy.add(Rule(Cut(after_bytes=10), Match(watch=True)))
    async with watching(session, upstream) as answer:
        await upstream.send("a")
        assert await answer.content.readexactly(10) == b'{"type": "'
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()


async def test_open_watches_are_cut_now(proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession) -> None:
    async with watching(session, upstream) as answer:
        await proxy.wait_for_open(Match(watch=True))
        assert proxy.cut(Match(path="/nodes")) == 0
        assert proxy.cut(Match(path="/services")) == 1
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.content.read()
    await reach(lambda: upstream.left == 1)
    assert proxy.requests[0].outcome == "cut"


async def test_an_open_watch_is_stalled_and_resumed(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    async with watching(session, upstream) as answer:
        await proxy.wait_for_open(Match(watch=True))
        assert proxy.stall() == 1
        await upstream.send("a")
        assert await silent(answer)
        assert upstream.left == 0
        assert proxy.resume() == 1
        assert await names(answer, 1) == ["a"]


async def test_a_stalled_request_hears_nothing_at_all(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    proxy.add(Rule(Stall()))
    asked = asyncio.create_task(session.put("/echo", json={}).__aenter__())
    await reach(lambda: proxy.requests and proxy.requests[0].upstream_status is not None)
    assert await asyncio.wait([asked], timeout=0.1) == (set(), {asked})
    assert len(upstream.taken) == 1
    assert proxy.requests[0].status is None
    asked.cancel()
    await asyncio.wait([asked])


async def test_a_stall_after_n_bytes_leaves_the_connection_open(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    proxy.add(Rule(Stall(after_bytes=0), Match(watch=True)))
    async with watching(session, upstream) as answer:
        await upstream.send("a")
        assert await silent(answer)
        proxy.resume()
        assert await names(answer, 1) == ["a"]


async def test_an_answer_of_ours_is_a_status_object(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    proxy.add(Rule(Answer(429, retry_after=3), times=1))
    async with session.get("/item") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
        status = await answer.json()
    assert (status["kind"], status["reason"], status["details"]) == (
        "Status",
        "TooManyRequests",
        {"retryAfterSeconds": 3},
    )
    assert upstream.taken == []
    async with session.get("/item") as answer:
        assert answer.status == 200
    assert [one.outcome for one in proxy.requests] == ["answered", "passed"]


async def test_the_work_may_be_done_although_an_error_is_answered(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    proxy.add(Rule(Answer(500, applied=True)))
    async with session.put("/echo", json={"a": 1}) as answer:
        assert answer.status == 500
    assert len(upstream.taken) == 1
    assert (proxy.requests[0].upstream_status, proxy.requests[0].status) == (201, 500)


async def test_a_delay_is_waited_for(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
    proxy.add(Rule(Delay(0.05)))
    proxy.add(Rule(Delay(0.05, applied=True)))
    started = asyncio.get_running_loop().time()
    await session.get("/item")
    assert asyncio.get_running_loop().time() - started >= 0.1


@pytest.mark.parametrize(("applied", "taken"), [(False, 0), (True, 1)])
async def test_the_test_is_called_back_at_the_nth_request_on_the_chosen_side_of_the_server(
    proxy: FaultProxy,
    upstream: Upstream,
    session: aiohttp.ClientSession,
    *,
    applied: bool,
    taken: int,
) -> None:
    taken_then: list[int] = []

    async def look(exchange: Exchange) -> None:
        taken_then.append(len(upstream.taken))
        assert exchange.json == {"n": 2}

    proxy.add(Rule(Act(look, applied=applied), Match(mutating=True), nth=2, times=1))
    for number in (1, 2, 3):
        async with session.put("/echo", json={"n": number}) as answer:
            assert answer.status == 201
    assert taken_then == [1 + taken]


@pytest.mark.parametrize(("applied", "taken"), [(False, 0), (True, 1)])
async def test_a_call_back_can_be_the_last_thing_that_happens(
    proxy: FaultProxy,
    upstream: Upstream,
    session: aiohttp.ClientSession,
    *,
    applied: bool,
    taken: int,
) -> None:
    async def kill(_: Exchange) -> None:
        pass

    proxy.add(Rule(Act(kill, applied=applied, pass_on=False)))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await session.patch("/echo", json={})  # aiohttp's client would send a PUT twice
    assert len(upstream.taken) == taken


async def test_an_error_is_injected_after_n_events_and_ends_the_watch(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    proxy.add(Rule(InjectError(after_events=1), Match(watch=True)))
    async with watching(session, upstream) as answer:
        await upstream.send("a")
        assert await names(answer, 1) == ["a"]
        last = json.loads(await answer.content.readline())
        assert (last["type"], last["object"]["code"], last["object"]["reason"]) == ("ERROR", 410, "Expired")
        assert await answer.content.read() == b""


async def test_an_error_can_be_the_first_event(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
    proxy.add(Rule(InjectError(), Match(watch=True)))
    async with session.get("/api/v1/services", params=WATCH) as answer:
        assert [json.loads(line)["type"] async for line in answer.content] == ["ERROR"]


async def test_open_watches_are_told_that_they_expired(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    async with watching(session, upstream) as answer:
        await proxy.wait_for_open(Match(watch=True))
        assert await proxy.inject(event("made-up")) == 1
        assert await names(answer, 1) == ["made-up"]
        assert await proxy.expire() == 1
        assert [json.loads(line)["object"]["code"] async for line in answer.content] == [410]
    await reach(lambda: upstream.left == 1)


async def test_a_field_is_dropped_from_answers_requests_and_events(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    proxy.add(Rule(DropField(IP_MODE)))
    proxy.add(Rule(DropField("a.b", of="request")))
    async with session.get("/item") as answer:
        assert (await answer.json())["status"]["loadBalancer"]["ingress"] == [{"ip": "127.84.0.1"}]
    async with session.put("/echo", json={"a": {"b": 1, "c": 2}}) as answer:
        assert await answer.json() == {"a": {"c": 2}}
    async with watching(session, upstream) as stream:
        await upstream.watchers[-1].write(json.dumps(event("a", "Proxy")).encode() + b"\n")
        assert json.loads(await stream.content.readline()) == event("a")


async def test_events_come_twice_or_in_another_order(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    armed = proxy.add(Rule(DuplicateEvents()))
    async with watching(session, upstream) as answer:
        await upstream.send("a", "b")
        assert await names(answer, 4) == ["a", "a", "b", "b"]
    proxy.remove(armed)
    proxy.add(Rule(ReorderEvents(window=2, patience=0.05)))
    async with watching(session, upstream) as answer:
        await upstream.send("a", "b", "c")
        assert await names(answer, 3) == ["b", "a", "c"]


async def test_held_events_wait_while_others_overtake_them(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    hold = HoldEvents(name="^slow")
    proxy.add(Rule(hold))
    async with watching(session, upstream) as answer:
        await upstream.send("slow-1", "slow-2", "quick")
        assert await names(answer, 1) == ["quick"]
        assert await silent(answer)
        hold.release()
        assert await names(answer, 2) == ["slow-1", "slow-2"]
        await upstream.send("slow-3")
        assert await names(answer, 1) == ["slow-3"]


async def test_new_connections_are_refused_and_accepted_again(
    proxy: FaultProxy, session: aiohttp.ClientSession
) -> None:
    await proxy.refuse()
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get("/item")
    await proxy.accept()
    async with session.get("/item") as answer:
        assert answer.status == 200


async def test_the_proxy_never_repeats_a_request_of_its_own_accord() -> None:
    taken: list[bytes] = []

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, FaultProxy(f"http://127.0.0.1:{port}") as proxy, aiohttp.ClientSession(proxy.url) as session:
        for count in (1, 2):
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.request("PATCH" if count == 1 else "DELETE", "/echo")
    assert len(taken) == len(proxy.requests)


async def test_a_server_that_is_away_is_a_broken_connection() -> None:
    async with FaultProxy("http://127.0.0.1:9") as proxy, aiohttp.ClientSession(proxy.url) as session:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.get("/item")
        assert proxy.requests[0].outcome == "upstream gone"


async def test_the_log_can_be_asked_waited_for_and_forgotten(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
    await session.get("/item")
    await session.put("/echo", json={})
    assert [one.number for one in await proxy.wait_for(Match(method="PUT"))] == [2]
    proxy.forget()
    assert proxy.requests == ()
    with pytest.raises(TimeoutError):
        await proxy.wait_for(Match(), timeout=0.05)


async def test_a_kubeconfig_is_derived_with_the_same_credentials(proxy: FaultProxy, tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": "Zm9v"}
    source = tmp_path / "source"
    source.write_text(
        yaml.safe_dump({"clusters": [{"name": "c", "cluster": cluster}], "users": [{"user": {"token": "t"}}]})
    )
    derived = proxy.kubeconfig(source, tmp_path / "derived")
    assert derived.stat().st_mode & 0o077 == 0
    content = yaml.safe_load(derived.read_text())
    assert content["clusters"] == [{"name": "c", "cluster": {"server": proxy.url}}]
    assert content["users"] == [{"user": {"token": "t"}}]


def test_a_proxy_without_a_valid_key_says_so_at_once(tmp_path: Path) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        FaultProxy("http://127.0.0.1:9", tls=(tmp_path / "none", tmp_path / "none"))
