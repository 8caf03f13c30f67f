"""Whose finalizer it is, and whose load balancer."""

from __future__ import annotations

import asyncio

import pytest

from ccm_lb.errors import (
    CCMError,
    ConflictError,
    ImplementedElsewhereError,
    InvalidError,
    NotLeaderError,
    RetryAfterError,
    TerminalError,
)
from ccm_lb.objects import CLEANUP_FINALIZER
from ccm_lb.testing import builders
from ccm_lb.testing.script import Late
from tests.component.world import CHOSEN, CLUSTER, DELETED, DELETING, ENSURED, ENSURING, KEY, OTHER_UID, World

# ---- whose finalizer


def foreign(world: World, *, manager: str) -> None:
    """A Service of another controller's class, with the finalizer that all controllers use."""
    world.api.create(
        builders.service_json(builders.of_class("example.com/other"), builders.finalizers()), manager=manager
    )


@pytest.mark.scenario("B84")
@pytest.mark.parametrize("phase", ["created", "port-changed", "deleted"])
async def test_a_service_of_another_controller_is_left_alone(world: World, phase: str) -> None:
    foreign(world, manager="other-ccm")
    await world.reconcile()
    if phase == "port-changed":
        world.edit(builders.port(81))
    elif phase == "deleted":
        world.delete()
    before = world.service
    await world.reconcile()
    assert world.service == before
    assert (world.events.all, world.cloud.changes(), world.api.patches) == ([], [], [])


async def test_a_finalizer_of_another_controller_is_asked_about_once(world: World) -> None:
    foreign(world, manager="other-ccm")
    await world.reconcile()
    world.forget_history()
    gets = len(world.api.gets)
    world.edit(builders.port(81))
    await world.reconcile()
    assert (world.cloud.calls, len(world.api.gets)) == ([], gets)


async def test_our_finalizer_on_a_service_of_another_class_is_taken_off(world: World) -> None:
    foreign(world, manager="ccm-lb")
    await world.reconcile()
    assert world.finalizers == []


async def test_a_service_of_another_class_that_is_gone_by_now_is_nobodys(world: World) -> None:
    foreign(world, manager="other-ccm")
    world.hold_watch()
    world.vanish()
    await world.reconcile()
    assert world.cloud.changes() == []


async def test_a_class_changed_while_no_controller_ran_is_cleaned_up(world: World) -> None:
    await world.reconciled()
    world.edit(builders.of_class("example.com/other"))
    world.start_process()
    world.state.take_over()
    world.list_everything()
    await world.reconcile()
    assert world.finalizers == []
    assert world.cloud.load_balancers == {}
    assert world.ingress == []


async def test_a_class_change_is_cleaned_up(world: World) -> None:
    await world.reconciled()
    world.edit(builders.of_class("example.com/other"))
    await world.reconcile()
    assert world.finalizers == []
    assert world.cloud.changes() == ["DELETE"]


async def test_a_finalizer_that_another_controller_left_to_us_is_ours_to_take_off(world: World) -> None:
    # As after a move from another controller: it set the finalizer, this one serves.
    world.api.create(builders.service_json(builders.finalizers()), manager="go-ccm")
    await world.reconcile()
    world.cloud.remove((CLUSTER, builders.SERVICE_UID))
    world.edit(builders.of_class("example.com/other"))
    await world.reconcile()
    assert world.finalizers == []


async def test_an_address_that_another_controller_published_is_left_in_the_status(world: World) -> None:
    await world.reconciled()
    world.edit(builders.of_class("example.com/other"), builders.published({"ip": "198.51.100.200"}))
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == ["198.51.100.200"]


@pytest.mark.scenario("B36")
async def test_foreign_finalizers_stay_as_their_owner_left_them(world: World) -> None:
    world.create(builders.finalizers("other.example.com/hold"))
    await world.reconcile()
    assert set(world.finalizers) == {CLEANUP_FINALIZER, "other.example.com/hold"}
    world.delete()
    # Between our last look and our write another one comes and goes.
    world.hold_watch()
    world.edit(builders.finalizers(CLEANUP_FINALIZER, "late.example.com/hold"))
    await world.reconcile()
    assert world.finalizers == ["late.example.com/hold"]


# ---- the same name again


async def created_again(world: World, *tweaks: builders.Tweak) -> None:
    await world.reconciled()
    world.hold_watch()
    world.vanish()
    world.held = []  # neither of these two events is delivered
    world.create(builders.uid(OTHER_UID), *tweaks)
    world.release_watch()


@pytest.mark.scenario("B46")
async def test_a_service_created_again_gets_its_own_and_the_old_one_is_deleted(world: World) -> None:
    await created_again(world, builders.port(81))
    await world.reconcile()
    assert world.cloud.changes() == ["DELETE", "CREATE"]
    assert world.events.lines() == [DELETING, DELETED, ENSURING, ENSURED, CHOSEN.replace("113.1", "113.2")]
    assert list(world.cloud.load_balancers) == [(CLUSTER, OTHER_UID)]
    assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]


async def test_a_failed_delete_of_the_old_one_is_said_and_repeated(world: World) -> None:
    await created_again(world)
    world.cloud.script.then("delete", CCMError("409"))
    await world.failed()
    assert world.events.lines() == [DELETING, "Warning DeleteLoadBalancerFailed Error deleting load balancer: 409"]
    await world.reconcile()
    assert list(world.cloud.load_balancers) == [(CLUSTER, OTHER_UID)]


@pytest.mark.parametrize(
    "error",
    [RetryAfterError("draining", 9), NotLeaderError("lost"), TerminalError("protected")],
    ids=lambda e: type(e).__name__,
)
async def test_what_the_backend_says_of_the_old_ones_delete_is_handed_on(world: World, error: Exception) -> None:
    await created_again(world)
    world.cloud.script.then("delete", error)
    await world.failed(type(error))


async def test_a_delete_of_the_old_one_that_is_implemented_elsewhere_is_done(world: World) -> None:
    await created_again(world)
    world.cloud.script.then("delete", ImplementedElsewhereError())
    await world.reconcile()
    assert world.ingress


async def test_the_status_never_goes_to_another_uid(world: World) -> None:
    world.create()
    answer = asyncio.Event()
    world.cloud.script.then("ensure", Late(answer))
    task = asyncio.create_task(world.reconcile())
    await asyncio.sleep(0.01)
    world.hold_watch()
    world.vanish()
    world.create(builders.uid(OTHER_UID))
    answer.set()
    await task
    assert world.ingress == []
    assert world.cloud.load_balancers == {}


async def test_a_vanished_service_is_asked_about_before_it_is_believed(world: World) -> None:
    await world.reconciled()
    world.vanish()
    await world.reconcile()
    assert world.api.gets == [KEY]
    assert world.cloud.changes() == ["DELETE"]
    assert world.events.lines() == [DELETING, DELETED]


async def test_a_conflict_is_a_failure_like_others(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", ConflictError("changed meanwhile", status=409))
    await world.failed()
    assert world.finalizers == []


async def test_a_refused_patch_of_a_living_service_is_said(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", None, InvalidError("ipMode: Unsupported value", status=422))
    assert await world.failed() == "failed to update load balancer status: ipMode: Unsupported value"
