"""What happens to the events of a watch."""

import json

import aiohttp

from tests.faultproxy import (
    DropField,
    DuplicateEvents,
    FaultProxy,
    HoldEvents,
    InjectError,
    Match,
    ReorderEvents,
    Rule,
)
from tests.unit.faultproxy.world import IP_MODE, WATCH, Upstream, event, names, reach, silent, watching


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
