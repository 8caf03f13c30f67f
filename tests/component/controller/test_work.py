"""What the holder of the Lease says it is at."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_lb.errors import CCMError, RetryAfterError, TerminalError
from tests.component.world import World, settle

pytestmark = pytest.mark.looptime


@pytest.fixture
def world() -> World:
    """An empty cluster, for tests in which the controller works by itself."""
    return World()


def report(world: World) -> dict[str, Any]:
    return world.controller.at_work.report(str.upper)


def only(world: World) -> dict[str, Any]:
    (one,) = report(world)["services"]
    return dict(one)


async def test_nothing_to_do_is_an_empty_report(world: World) -> None:
    async with world.working():
        await world.served()
        assert report(world) == {"queue": {"length": 0, "oldestSeconds": 0.0}, "services": []}


@pytest.mark.parametrize(
    ("error", "outcome", "failures", "retry"),
    [
        pytest.param(CCMError("quota"), "failed", 1, 5.0, id="a failure"),
        pytest.param(TerminalError("quota"), "refused", 0, 300.0, id="of no use until it changes"),
        pytest.param(RetryAfterError("quota", 7.0), "waiting", 0, 7.0, id="the cloud needs time"),
    ],
)
async def test_trouble_is_told_with_the_time_of_the_next_attempt(
    world: World, error: CCMError, outcome: str, failures: int, retry: float
) -> None:
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", error)
        world.create()
        await settle()
        one = only(world)
        assert (one["service"], one["outcome"], one["failures"]) == ("lb/web", outcome, failures)
        assert "QUOTA" in one["reason"], "no reason leaves unredacted"
        assert one["retryInSeconds"] == pytest.approx(retry, abs=0.1)
        await settle(retry + 1)
        assert report(world)["services"] == [], "an attempt that ends well is the end of the trouble"


async def test_what_is_worked_on_and_what_waits_is_told_with_its_time(world: World) -> None:
    async with world.working(workers=1):
        await world.served()
        answer = world.slow("ensure")
        world.edit({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}})
        await settle(3)
        assert only(world)["workingSeconds"] == pytest.approx(3, abs=0.1)
        world.edit({"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}})
        await settle(2)
        assert only(world)["queuedSeconds"] == pytest.approx(2, abs=0.1)
        assert report(world)["queue"]["oldestSeconds"] == pytest.approx(2, abs=0.1)
        answer.set()
