"""A Service that its user wants to be left alone: nothing is written for it, it says so, and afterwards it is as if nothing had been."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.errors import CCMError, TerminalError
from ccm_lb.objects import CLEANUP_FINALIZER
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Json, Tweak
from tests.component.world import CLUSTER, DELETED, DELETING, ENSURED, ENSURING, UID, World, settle

PAUSED = builders.annotated(ccm_annotations.PAUSED, "true")
RESUMED = builders.annotated(ccm_annotations.PAUSED, None)
MISSPELT = builders.annotated(ccm_annotations.PAUSED, "yes")


def said(world: World) -> Any:
    """Status and reason of the condition that says whether it is paused."""
    conditions = world.service["status"].get("conditions", [])
    return next(((one["status"], one["reason"]) for one in conditions if one["type"] == "LoadBalancerPaused"), None)


async def paused(world: World) -> None:
    """A Service that was served before; history is forgotten."""
    await world.reconciled()
    world.edit(PAUSED)
    await world.reconcile()
    assert said(world) == ("True", "Annotation")
    assert world.events.reasons() == ["LoadBalancerPaused"]
    world.forget_history()


async def test_a_new_service_gets_nothing_but_the_condition(world: World) -> None:
    world.create(PAUSED)
    await world.reconcile()
    await world.reconcile()
    assert said(world) == ("True", "Annotation")
    assert (world.cloud.calls, world.finalizers, world.ingress, len(world.api.patches)) == ([], [], [], 1)
    assert world.events.reasons() == ["LoadBalancerPaused"]


CHANGES: dict[str, Tweak] = {
    "a port": builders.port(81),
    "the status is wiped": builders.published(),
    "the finalizer is taken": {"metadata": {"finalizers": None}},
    "the type": builders.of_type("ClusterIP"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_no_change_is_followed(world: World, change: str) -> None:
    await paused(world)
    world.edit(CHANGES[change])
    await world.reconcile()
    assert (world.cloud.calls, world.api.patches, world.events.all) == ([], [], [])


async def test_a_node_that_comes_gets_no_traffic_until_it_ends(world: World) -> None:
    await paused(world)
    world.add_nodes("n4")
    await world.reconcile()
    assert world.cloud.calls == []
    world.edit(RESUMED)
    await world.reconcile()
    assert world.targets == ("n1", "n2", "n3", "n4")


async def test_a_deletion_waits_and_says_so_once(world: World) -> None:
    await paused(world)
    world.delete()
    await world.reconcile()
    await world.reconcile()
    assert said(world) == ("True", "DeletionWaits")
    assert (world.cloud.calls, world.finalizers, len(world.api.patches)) == ([], [CLEANUP_FINALIZER], 1)
    assert world.events.reasons() == ["LoadBalancerPaused"]
    world.forget_history()
    world.edit(RESUMED)
    await world.reconcile()
    assert world.gone
    assert world.cloud.load_balancers == {}
    assert world.events.lines() == [DELETING, DELETED]


async def test_afterwards_all_of_it_is_verified(world: World) -> None:
    await paused(world)
    world.cloud.load_balancers.clear()  # what somebody did by hand meanwhile
    world.edit(RESUMED)
    await world.reconcile()
    assert world.events.lines()[:2] == [ENSURING, ENSURED]
    assert (CLUSTER, UID) in world.cloud.load_balancers
    assert said(world) == ("False", "NotPaused")
    world.forget_history()
    await world.reconcile()
    assert (world.cloud.calls, world.api.patches) == ([], [])


@pytest.mark.parametrize("tweak", [RESUMED, builders.annotated(ccm_annotations.PAUSED, "false")], ids=["gone", "false"])
async def test_what_is_resumed_and_is_of_another_type_by_now_is_cleaned_up(world: World, tweak: Tweak) -> None:
    await paused(world)
    world.edit(builders.of_type("ClusterIP"))
    world.edit(tweak)
    await world.reconcile()
    assert (world.cloud.load_balancers, world.finalizers) == ({}, [])
    assert said(world) is None


async def test_a_restart_finds_it_paused(world: World) -> None:
    await paused(world)
    world.edit(builders.port(81))
    await world.restarted()
    assert (world.cloud.calls, world.api.patches, world.events.all) == ([], [], [])
    world.edit(RESUMED)
    await world.reconcile()
    assert world.cloud.load_balancers[CLUSTER, UID].listeners == (("TCP", 81, 30080),)


async def test_what_vanishes_while_paused_is_left_in_the_cloud_and_the_user_told(world: World) -> None:
    await paused(world)
    world.vanish()
    await world.reconcile()
    await world.reconcile()
    assert (CLUSTER, UID) in world.cloud.load_balancers
    assert world.cloud.calls == []
    assert world.events.reasons() == ["LoadBalancerKept"]


async def test_a_misspelt_wish_holds_off_a_deletion(world: World) -> None:
    await world.reconciled()
    world.edit(MISSPELT)
    assert "expected true or false" in await world.failed(TerminalError)
    world.delete()
    assert "expected true or false" in await world.failed(TerminalError)
    assert (CLUSTER, UID) in world.cloud.load_balancers
    world.edit(RESUMED)
    await world.reconcile()
    assert world.gone


@pytest.mark.looptime
async def test_a_service_that_waits_for_its_next_attempt_is_paused_at_once() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", *[CCMError("no capacity")] * 20)
        world.create()
        await settle(100)
        world.forget_history()
        world.edit(PAUSED)
        await settle(1)
        assert said(world) == ("True", "Annotation")
        await settle(1000)
        assert (world.cloud.calls, len(world.api.patches)) == ([], 1)


@pytest.mark.looptime
async def test_who_takes_the_condition_off_is_answered_at_once_then_rarely_and_named() -> None:
    world = World()
    times: list[float] = []

    def undo(resource: str, event: str, obj: Json) -> None:
        if resource == "services" and obj["status"].get("conditions") and len(times) < 4:
            times.append(round(asyncio.get_running_loop().time()))
            wiped: Tweak = {"status": {"conditions": []}}
            asyncio.get_running_loop().call_later(0.05, lambda: world.edit(wiped, manager="rival"))

    async with world.working():
        await world.served()
        world.api.watch(undo)
        world.edit(PAUSED)
        await settle(1000)
        assert [after - before for before, after in itertools.pairwise(times)] == [5, 10, 20]
        assert [one.reason for one in world.events.all].count("LoadBalancerContested") == 1
        assert said(world) == ("True", "Annotation")
