"""Clients of the API that have no token, or no manners: what they cost, and that the others are served meanwhile."""

import asyncio
import contextlib
import json
import socket
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from fakecloud.config import Settings
from fakecloud.state.ipam import Network
from tests.fakecloud.clients import DEADLINE, Api, Backends, Process, address_of, greeting, load_balancer, until

LBS = "/v1/load-balancers"
MEBIBYTE = 2**20
# What hundreds of requests take, and a tenth of what the work would be that nobody may order here; both in seconds of the processor.
LITTLE_WORK = 1.5


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@contextlib.asynccontextmanager
async def raw(url: str, sent: bytes = b"") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which bytes are said that no client library would say."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(url))
    writer.write(sent)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, object]]:
    """Status and body of the next answer."""
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE)).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    body = await asyncio.wait_for(reader.readexactly(length), DEADLINE)
    return int(head.split(" ")[1]), json.loads(body) if body else {}


async def ended(reader: asyncio.StreamReader) -> None:
    """Returns when the connection is closed, whatever comes before."""
    with contextlib.suppress(ConnectionError):
        while await asyncio.wait_for(reader.read(65536), DEADLINE):
            pass


def request(line: str, *headers: str, body: bytes = b"") -> bytes:
    """As bytes; header values may hold any of them, written in Latin-1."""
    return "\r\n".join([f"{line} HTTP/1.1", "Host: x", *headers, "", ""]).encode("latin-1") + body


def packed(form: str, size: int) -> bytes:
    packing = zlib.compressobj(wbits=31 if form == "gzip" else 15)
    zeros = bytes(MEBIBYTE)
    return b"".join(packing.compress(zeros) for _ in range(size // MEBIBYTE)) + packing.flush()


@pytest.fixture
async def served(tmp_path: Path, pool: Network, process: Process) -> AsyncIterator[Api]:
    """A real process, and who has its token."""
    ready = await asyncio.to_thread(process.start, tmp_path, "--pool", str(pool), "--token", "secret")
    async with aiohttp.ClientSession() as session:
        yield Api(session, ready["url"], "secret")


@pytest.mark.parametrize("form", ["gzip", "deflate"])
async def test_a_packed_body_of_a_stranger_is_never_unpacked(
    served: Api, process: Process, backends: Backends, form: str
) -> None:
    item = await served.create(
        listeners=[{"port": 8080, "targetPort": await backends.start("a")}], targets=[{"address": "127.0.0.1"}]
    )
    bomb = await asyncio.to_thread(packed, form, 500 * MEBIBYTE)
    before = process.worked
    async with contextlib.AsyncExitStack() as stack:
        for path in (LBS, "/v1/faults", "/v1/nothing", "/healthz", "/metrics", "/nothing") * 4:
            sent = request(
                f"POST {path}",
                f"Content-Encoding: {form}",
                f"Content-Length: {len(bomb)}",
                "Content-Type: x",
                body=bomb,
            )
            reader, _ = await stack.enter_async_context(raw(served.url, sent))
            assert (await answer(reader))[0] in {401, 404, 405}
            assert await greeting(address_of(item)) == "a"
        await served.get(LBS)
    assert process.worked - before < LITTLE_WORK


async def test_a_packed_body_is_unpacked_for_who_has_the_token_up_to_the_limit(api: Api) -> None:
    content = json.dumps(load_balancer()).encode()
    for form, wbits in (("gzip", 31), ("deflate", 15), ("deflate", -15), ("identity", None)):
        packing = zlib.compressobj(wbits=wbits) if wbits is not None else None
        sent = content if packing is None else packing.compress(content) + packing.flush()
        made = await api.call("POST", LBS, sent, Content_Encoding=form)
        assert made.status in {200, 201}, (form, wbits, made)
    bomb = await asyncio.to_thread(packed, "gzip", 64 * MEBIBYTE)
    assert (await api.call("POST", LBS, bomb, Content_Encoding="gzip")).problem == "body-too-large"
    assert (await api.call("POST", LBS, b"no gzip", Content_Encoding="gzip")).problem == "malformed-body"
    cut = zlib.compress(content)[:-10]
    assert (await api.call("POST", LBS, cut, Content_Encoding="deflate")).problem == "malformed-body"
    assert (await api.call("POST", LBS, content, Content_Encoding="br")).problem == "unsupported-encoding"


async def test_a_strangers_endless_body_is_answered_before_it_comes_and_not_read(served: Api, process: Process) -> None:
    before = process.worked
    async with raw(served.url, request(f"POST {LBS}", "Content-Length: 1000000000000")) as (reader, writer):

        async def pour() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(bytes(MEBIBYTE))
                    await writer.drain()

        pouring = asyncio.create_task(pour())
        status, problem = await answer(reader)
        assert (status, problem["title"]) == (401, "Unauthorized")
        await ended(reader)
        pouring.cancel()
    assert process.worked - before < LITTLE_WORK


async def test_a_client_that_asks_before_it_sends_is_told_to_only_with_the_token(api: Api) -> None:
    body = json.dumps(load_balancer()).encode()
    asking = ("Expect: 100-continue", f"Content-Length: {len(body)}")
    async with raw(api.url, request(f"POST {LBS}", *asking)) as (reader, _):
        assert (await answer(reader))[0] == 401
        await ended(reader)
    async with raw(api.url, request(f"POST {LBS}", "Authorization: Bearer secret", *asking)) as (reader, writer):
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(body)
        assert (await answer(reader))[0] == 201


class TestThatDoNotGoOn:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"client_timeout": 0.3})

    @pytest.mark.parametrize(
        "sent",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(b"GET /heal", id="half a line"),
            pytest.param(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: aaa", id="half a header"),
            pytest.param(request("GET /healthz"), id="nothing after an answer"),
            pytest.param(request("GET /healthz") + b"GET /healthz HTTP/1.1\r\nHo", id="half a header after an answer"),
        ],
    )
    async def test_a_connection_without_a_complete_header_is_closed(self, api: Api, sent: bytes) -> None:
        async with raw(api.url, sent) as (reader, _):
            await ended(reader)

    async def test_a_header_that_trickles_is_closed_as_well(self, api: Api) -> None:
        async with raw(api.url, b"GET /healthz HTTP/1.1\r\nX-Slow: ") as (reader, writer):

            async def trickle() -> None:
                with contextlib.suppress(ConnectionError):
                    while True:
                        writer.write(b"a")
                        await writer.drain()
                        await asyncio.sleep(0.01)

            trickling = asyncio.create_task(trickle())
            await ended(reader)
            trickling.cancel()

    async def test_a_body_that_stops_is_answered_and_closed(self, api: Api) -> None:
        half = request(f"POST {LBS}", "Authorization: Bearer secret", "Content-Length: 100", body=b'{"name"')
        async with raw(api.url, half) as (reader, _):
            status, problem = await answer(reader)
            assert (status, problem["title"]) == (408, "Request timeout")
            await ended(reader)

    async def test_a_client_that_reads_no_answer_is_cut(self, api: Api) -> None:
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await asyncio.to_thread(client.connect, ("127.0.0.1", port_of(api.url)))
            client.sendall(request("GET /openapi.json") * 30)

            async def cut() -> bool:
                # The kernel tells nobody; who says more learns that nobody is there.
                try:
                    client.send(b"G")
                except ConnectionError:
                    return True
                return False

            await until(cut)


async def test_idle_strangers_make_room_and_nobody_with_the_token_has_to_go(served: Api) -> None:
    async with contextlib.AsyncExitStack() as stack:
        known = request("GET /v1/servers", "Authorization: Bearer secret")
        reader, writer = await stack.enter_async_context(raw(served.url, known))
        assert (await answer(reader))[0] == 200
        strangers = [await stack.enter_async_context(raw(served.url)) for _ in range(300)]
        for stranger, _ in strangers[:40]:
            await ended(stranger)
        async with aiohttp.ClientSession() as session:
            await Api(session, served.url, "secret").get(LBS)
        writer.write(known)
        assert (await answer(reader))[0] == 200
        # The latest of them are still welcome.
        newest, speaking = strangers[-1]
        speaking.write(request("GET /healthz"))
        assert (await asyncio.wait_for(newest.readline(), DEADLINE)).startswith(b"HTTP/1.1 200")


NO_TEXT = "\xff\xfe"


@pytest.mark.parametrize(
    "header", ["User-Agent", "Fencing-Token", "X-Request-Id", "Idempotency-Key", "If-Match", "Cookie"]
)
@pytest.mark.parametrize("token", ["secret", "wrong", NO_TEXT])
async def test_a_header_that_is_no_text_leaves_the_journal_readable(api: Api, header: str, token: str) -> None:
    own = ("Content-Length: 2", f"Authorization: Bearer {token}", f"{header}: {NO_TEXT}")
    for line in (f"POST {LBS}", f"PATCH {LBS}/gone", "DELETE /v1/servers/gone"):
        async with raw(api.url, request(line, *own, body=b"{}")) as (reader, _):
            status, _ = await answer(reader)
            assert 400 <= status < 500
    calls = await api.journal()
    assert len(calls) == 3
    if header == "User-Agent":
        assert calls[0]["userAgent"] == "\\udcff\\udcfe"
    assert (await api.get("/v1/journal/counts"))["total"] == 3
    async with aiohttp.ClientSession() as session:
        metrics = await session.get(f"{api.url}/metrics", headers={"Authorization": "Bearer secret"})
        assert metrics.status == 200


@pytest.mark.parametrize(
    ("header", "values"),
    [
        (
            "Fencing-Token",
            ["", ":", "a", "a:", ":1", "a:-1", "a:1.0", "a:٣", "a:" + "9" * 19, "a" * 256 + ":1", "\x80:1"],
        ),
        ("Idempotency-Key", ["", "k" * 256, "k\x80", "a\tb"]),
        ("If-Match", ["", "1", '"1', '"1" "2"', '"1",', '"\x80"', "*, *"]),
    ],
)
async def test_a_header_of_another_form_is_named_with_its_value(api: Api, header: str, values: list[str]) -> None:
    path = f"{LBS}/{(await api.create())['id']}"
    for value in values:
        sent = value.encode().decode("latin-1")
        own = ("Authorization: Bearer secret", "Content-Length: 2", f"{header}: {sent}")
        async with raw(api.url, request(f"PATCH {path}", *own, body=b"{}")) as (reader, _):
            status, problem = await answer(reader)
        assert (status, problem["type"]) == (400, f"/problems/malformed-{header.lower()}"), (value, problem)
        assert f"header {header}: expected " in str(problem["detail"])


def broken_requests() -> Iterator[bytes]:
    yield b"\x16\x03\x01\x02\x00nothing\r\n\r\n"
    yield b"GET\r\n\r\n"
    yield request("GET /v1/\xff")
    yield request(f"GET {LBS}?owner=\xff")
    yield request("GET /" + "a" * 20_000)
    yield request("GET /healthz", "X-Long: " + "a" * 20_000)
    yield request("GET /healthz", *(f"X-{number}: 1" for number in range(1000)))
    yield request("GET /healthz", "X-Escape: \x1b[31m")
    yield request(f"POST {LBS}", "Content-Length: -1")
    yield request(f"POST {LBS}", "Content-Length: 1", "Transfer-Encoding: chunked")


async def test_what_is_no_http_is_a_problem_and_leaves_no_trace_in_the_log(served: Api, process: Process) -> None:
    for sent in broken_requests():
        async with raw(served.url, sent) as (reader, _):
            status, problem = await answer(reader)
            assert (status, problem["type"]) == (400, "/problems/malformed-request"), sent
            await ended(reader)
    await served.get(LBS)
    _, _, log = await asyncio.to_thread(process.end)
    assert "Traceback" not in log
    assert len(log.splitlines()) == 2, log


async def test_a_deeply_nested_body_is_malformed_for_faults_by_owner_too(api: Api) -> None:
    fault = {"match": {"owner": "u1"}, "effect": {"kind": "status", "status": 503}}
    assert (await api.call("POST", "/v1/faults", fault)).status == 201
    for nested in (b"[" * 200_000, b'{"owner":' * 100_000, b'{"owner": ' + b"[" * 200_000):
        assert (await api.call("POST", LBS, nested)).problem == "malformed-json"


async def test_a_fault_by_owner_waits_for_no_strangers_body(api: Api) -> None:
    fault = {"match": {"owner": "u1"}, "effect": {"kind": "status", "status": 503}}
    assert (await api.call("POST", "/v1/faults", fault)).status == 201
    async with raw(api.url, request(f"POST {LBS}", "Content-Length: 100")) as (reader, _):
        assert (await answer(reader))[0] == 401
    assert (await api.call("POST", LBS, load_balancer())).status == 503


class TestWithASmallJournal:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"journal_size": 20})

    async def test_strangers_push_only_each_other_out_of_the_journal(self, api: Api) -> None:
        item = await api.create()
        async with aiohttp.ClientSession() as session:
            stranger = Api(session, api.url, "wrong")
            for number in range(30):
                assert (await stranger.call("DELETE", f"{LBS}/{number}")).status == 401
        await api.get(f"{LBS}/{item['id']}")
        calls = await api.journal()
        assert [call["seq"] for call in calls] == [1, 30, 31, 32]
        assert [call["status"] for call in await api.journal("?since=30")] == [401, 200]
        applied = {"filter": {"applied": True}, "exactly": 1}
        verdict = (await api.call("POST", "/v1/journal/verify", applied)).body
        assert (verdict["satisfied"], verdict["complete"]) == (True, True)
        # They might have matched these, which can't be told any more.
        for doubtful in ({"method": "DELETE"}, {"status": 401}, {"outcome": "refused"}, {"applied": False}):
            assert not (await api.call("POST", "/v1/journal/verify", {"filter": doubtful})).body["complete"]
        for clear in ({"outcome": "read"}, {"owner": "u1"}, {"since": 30}):
            assert (await api.call("POST", "/v1/journal/verify", {"filter": clear})).body["complete"]


async def test_entries_of_the_journal_have_a_size_whatever_is_sent(api: Api) -> None:
    long = "a" * 8000
    for line in (f"GET /v1/{long}", f"GET {LBS}?owner={long}"):
        async with raw(api.url, request(line, f"User-Agent: {long}", f"Fencing-Token: {long}")) as (reader, _):
            assert (await answer(reader))[0] == 401
    for call in await api.journal():
        assert len(json.dumps(call)) < 4096
