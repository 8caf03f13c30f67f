"""A cloud that loses replies, is slow, limited, stale, locked or down, by fakecloud's own faults: in the end all is as it should be."""

import asyncio
import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from tests.harness import objects
from tests.harness.cloud import listeners
from tests.harness.stack import FINALIZER, SETTLE, Stack, answer


@dataclasses.dataclass(frozen=True)
class Trouble:
    """What happens to up to `times` calls about one Service, and what its user reads of it; empty where one call survives it."""

    effect: Mapping[str, Any]
    times: int
    said: str = ""


# A call is sent three times where that can help: what happens three times is a failure that the user is told.
TROUBLES = {
    "lost": Trouble({"kind": "reset", "when": "after"}, 1),
    "lost-thrice": Trouble({"kind": "reset", "when": "after"}, 3, "the connection was cut"),
    "cut-thrice": Trouble({"kind": "reset", "when": "before"}, 3, "the connection was cut"),
    "down": Trouble({"kind": "status", "status": 503}, 1),
    "down-thrice": Trouble({"kind": "status", "status": 503}, 3, "a fault orders this answer"),
    "broken": Trouble({"kind": "status", "status": 500}, 1, "a fault orders this answer"),
    "broken-after": Trouble({"kind": "status", "status": 500, "when": "after"}, 1, "a fault orders this answer"),
    "slow": Trouble({"kind": "latency", "seconds": 1.0, "when": "after"}, 1),
    "hanging": Trouble({"kind": "hang", "when": "after"}, 1),
    "locked-out": Trouble({"kind": "token-expired"}, 1, "the token has expired"),
}


class Met(NamedTuple):
    """A Service, and the fault that waits for it."""

    name: str
    uid: str
    fault: str


async def services(stack: Stack, kind: str) -> Mapping[str, str]:
    """One Service for each trouble, all of this type; their UIDs by name."""
    made = [
        await stack.create(objects.service(name, {"http": 18100 + number}, type=kind))
        for number, name in enumerate(TROUBLES)
    ]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in made}


async def order(stack: Stack, uids: Mapping[str, str], method: str) -> Sequence[Met]:
    """Each Service's own trouble, at the calls of this method about it."""
    return [
        Met(
            name,
            uids[name],
            await stack.cloud.fault(
                match={"owner": uids[name], "methods": [method]}, times=trouble.times, **trouble.effect
            ),
        )
        for name, trouble in TROUBLES.items()
    ]


async def wait_begun(stack: Stack, met: Sequence[Met]) -> None:
    """Wait until each fault has struck; what hangs is let go."""
    for one in met:
        await stack.cloud.wait_struck(one.fault)
        if TROUBLES[one.name].effect["kind"] == "hang":
            await stack.cloud.mend(one.fault)


async def wait_told(stack: Stack, name: str, reason: str, words: str) -> None:
    """Wait until the user of the Service reads an event of this reason with these words."""
    seen: list[tuple[str, str, str]] = []
    try:
        async with asyncio.timeout(SETTLE):
            while not any(told == reason and words in message for _, told, message in seen):
                await asyncio.sleep(0.1)
                seen = await stack.events(name)
    except TimeoutError:
        raise AssertionError(f"{name} was not told {reason}: {words}, but: {seen}") from None


async def wait_all_told(stack: Stack, met: Sequence[Met]) -> None:
    for one in met:
        if TROUBLES[one.name].said:
            await wait_told(stack, one.name, "SyncLoadBalancerFailed", TROUBLES[one.name].said)


async def assert_applied_once(stack: Stack, met: Sequence[Met], method: str, since: int) -> None:
    for one in met:
        await stack.cloud.verify(since, exactly=1, owner=one.uid, applied=True)
        await stack.cloud.verify(since, exactly=1, owner=one.uid, applied=True, method=method)


async def test_whatever_happens_to_a_create_there_is_one_load_balancer(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        since, met = await stack.cloud.position(), await order(stack, await services(stack, "ClusterIP"), "POST")
        for one in met:
            await stack.patch(one.name, {"spec": {"type": "LoadBalancer"}})
        await wait_begun(stack, met)
        for one in met:
            service = await stack.wait_served(one.name)
            load_balancer = await stack.cloud.load_balancer(one.uid)
            assert load_balancer is not None
            assert objects.ingress(service) == [{"ip": load_balancer["addresses"][0]["address"], "ipMode": "Proxy"}]
            assert service["metadata"]["finalizers"] == [FINALIZER]
        await assert_applied_once(stack, met, "POST", since)
        await wait_all_told(stack, met)


async def test_whatever_happens_to_a_change_it_is_made_once(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        uids = await services(stack, "LoadBalancer")
        before = {name: objects.ingress(await stack.wait_served(name)) for name in uids}
        since, met = await stack.cloud.position(), await order(stack, uids, "PATCH")
        for one in met:
            await stack.patch(one.name, {"spec": {"ports": [{"name": "http", "port": 18200, "targetPort": 8080}]}})
        await wait_begun(stack, met)
        for one in met:
            await stack.wait_balanced(one.uid, lambda lb: [port for _, port, _ in listeners(lb)] == [18200])
        assert {name: objects.ingress(await stack.get(name)) for name in uids} == before
        await assert_applied_once(stack, met, "PATCH", since)
        await wait_all_told(stack, met)


async def test_whatever_happens_to_a_deletion_nothing_is_left(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        uids = await services(stack, "LoadBalancer")
        for name in uids:
            await stack.wait_served(name)
        since, met = await stack.cloud.position(), await order(stack, uids, "DELETE")
        for one in met:
            await stack.delete(one.name)
        await wait_begun(stack, met)
        for one in met:
            await stack.wait_gone(one.name)
        assert await stack.cloud.load_balancers() == []
        await assert_applied_once(stack, met, "DELETE", since)
        # What is gone is no longer the Service's, nor is its trouble: the second DELETE is answered, and nobody need be told.
        await wait_all_told(stack, [one for one in met if one.name != "lost-thrice"])


@pytest.mark.parametrize(("kind", "said"), [("outage", "the API is down"), ("token-expired", "the token has expired")])
async def test_while_the_whole_api_is_away_traffic_flows_and_afterwards_what_waited_is_done(
    stack: Stack, kind: str, said: str
) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        for name, port in (("stays", 18080), ("goes", 18081)):
            await stack.create(objects.service(name, {"http": port}))
        stays = await stack.wait_served("stays")
        await stack.wait_served("goes")
        await stack.serve(stays, "n1")
        assert await answer(stays) == "n1"
        since, away = await stack.cloud.position(), await stack.cloud.fault(kind)
        await stack.delete("goes")
        came = await stack.create(objects.service("comes", {"http": 18082}))
        for name in ("goes", "comes"):
            type_, _, message = await stack.wait_event(name, "SyncLoadBalancerFailed")
            assert (type_, said in message) == ("Warning", True), message
        assert await answer(stays) == "n1"
        assert FINALIZER in (await stack.get("goes"))["metadata"]["finalizers"]
        await stack.cloud.verify_nothing_written(since)
        await stack.cloud.mend(away)
        await stack.wait_served("comes")
        await stack.wait_gone("goes")
        owners = {one["owner"]["uid"] for one in await stack.cloud.load_balancers()}
        assert owners == {stays["metadata"]["uid"], came["metadata"]["uid"]}


async def test_a_pause_that_the_cloud_asks_for_is_kept_by_all_calls_and_said(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        since = await stack.cloud.position()
        await stack.cloud.fault("status", match={"methods": ["POST"]}, times=1, status=429, retryAfterSeconds=6)
        for number in range(3):
            await stack.create(objects.service(f"web-{number}", {"http": 18100 + number}))
        for number in range(3):
            await stack.wait_served(f"web-{number}")
        calls = await stack.cloud.journal(since=str(since))
        (refused,) = [one for one in calls if one["status"] == 429]
        began = dt.datetime.fromisoformat(refused["at"])
        pauses = [(dt.datetime.fromisoformat(one["at"]) - began).total_seconds() for one in calls]
        # Those that were on their way when it was asked for arrive at once.
        assert [pause for pause in pauses if 3 < pause < 6] == []
        assert max(pauses) >= 6
        told = [one for number in range(3) for one in await stack.events(f"web-{number}")]
        assert any(reason == "WaitingForLoadBalancer" and "the cloud" in message for _, reason, message in told), told


async def test_a_rate_limit_is_kept_and_everybody_is_served(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        since = await stack.cloud.position()
        limit = await stack.cloud.fault("rate-limit", match={"methods": ["POST"]}, requestsPerSecond=2, burst=2)
        made = [await stack.create(objects.service(f"web-{number}", {"http": 18100 + number})) for number in range(8)]
        await asyncio.gather(*(stack.wait_served(one["metadata"]["name"]) for one in made))
        await stack.cloud.mend(limit)
        assert len(await stack.cloud.load_balancers()) == len(made)
        await stack.cloud.verify(since, exactly=len(made), method="POST", applied=True)
        refused = await stack.cloud.journal(since=str(since), status="429")
        assert 0 < len(refused) < 60, "a pause that is asked for holds for all"
