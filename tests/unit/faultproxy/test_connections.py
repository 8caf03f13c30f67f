"""Connections that are cut, reset, stalled and refused."""

import asyncio

import aiohttp
import pytest

from tests.faultproxy import (
    Cut,
    FaultProxy,
    Match,
    Rule,
    Stall,
)
from tests.unit.faultproxy.world import Upstream, names, reach, silent, watching


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


async def test_new_connections_are_refused_and_accepted_again(
    proxy: FaultProxy, session: aiohttp.ClientSession
) -> None:
    await proxy.refuse()
    with pytest.raises(aiohttp.ClientConnectorError):
        await session.get("/item")
    await proxy.accept()
    async with session.get("/item") as answer:
        assert answer.status == 200
