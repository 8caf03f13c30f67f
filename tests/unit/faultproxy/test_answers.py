"""Answers of the proxy, pauses, and tests that are called back."""

import asyncio

import aiohttp
import pytest

from tests.faultproxy import (
    Act,
    Answer,
    Delay,
    Exchange,
    FaultProxy,
    Match,
    Rule,
)
from tests.unit.faultproxy.world import Upstream


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
