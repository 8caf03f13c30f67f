"""Taking a load balancer away."""

from __future__ import annotations

import asyncio

import pytest

from ccm_lb.errors import ApiError, CCMError, ImplementedElsewhereError, RetryAfterError, TerminalError
from ccm_lb.objects import CLEANUP_FINALIZER
from ccm_lb.testing import builders
from ccm_lb.testing.script import Late, Lost
from tests.component.world import DELETED, DELETING, World


async def test_a_deleted_service_loses_load_balancer_status_and_finalizer_in_one_patch(world: World) -> None:
    await world.reconciled()
    world.delete()
    await world.reconcile()
    assert world.gone
    assert world.cloud.verbs() == ["get", "delete"]
    assert world.cloud.load_balancers == {}
    assert world.events.lines() == [DELETING, DELETED]
    assert len(world.api.patches) == 1


@pytest.mark.parametrize("to", ["ClusterIP", "NodePort", "ExternalName"])
@pytest.mark.scenario("B35")
async def test_a_changed_type_is_cleaned_up_and_the_service_stays(world: World, to: str) -> None:
    await world.reconciled()
    world.edit(builders.of_type(to))
    await world.reconcile()
    assert (world.finalizers, world.ingress) == ([], [])
    assert world.cloud.changes() == ["DELETE"]
    assert world.events.lines() == [DELETING, DELETED]


@pytest.mark.scenario("B35")
async def test_a_type_changed_while_no_controller_ran_is_cleaned_up(world: World) -> None:
    await world.reconciled()
    world.edit(builders.of_type("ClusterIP"))
    world.start_process()
    world.state.take_over()
    world.list_everything()
    await world.reconcile()
    assert world.finalizers == []
    assert world.cloud.load_balancers == {}


async def test_where_no_load_balancer_was_it_is_deleted_all_the_same_and_only_deleted_is_said(world: World) -> None:
    world.create(builders.finalizers(), builders.deleting())
    await world.reconcile()
    assert world.cloud.verbs() == ["get", "delete"]
    assert world.events.lines() == [DELETED]
    assert world.gone


async def test_a_look_up_that_fails_keeps_the_finalizer(world: World) -> None:
    await world.reconciled()
    world.delete()
    world.cloud.script.then("get", CCMError("503"))
    await world.failed()
    assert world.events.lines() == [
        "Warning SyncLoadBalancerFailed Error syncing load balancer: "
        "failed to check if load balancer exists before cleanup: 503"
    ]
    assert world.finalizers == [CLEANUP_FINALIZER]
    assert world.cloud.changes() == []


@pytest.mark.scenario("B43")
async def test_a_failed_delete_keeps_the_finalizer_and_is_repeated(world: World) -> None:
    await world.reconciled()
    world.delete()
    world.cloud.script.then("delete", CCMError("409"), CCMError("409"))
    await world.failed()
    assert world.events.lines() == [
        DELETING,
        "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to delete load balancer: 409",
    ]
    assert world.finalizers == [CLEANUP_FINALIZER]
    await world.failed()
    await world.reconcile()
    assert world.gone
    assert world.cloud.load_balancers == {}


async def test_a_failure_to_take_the_finalizer_off_is_said_with_upstreams_words(world: World) -> None:
    await world.reconciled()
    world.delete()
    world.api.script.then("patch_service_status", ApiError("internal", status=500))
    assert await world.failed() == "failed to remove load balancer cleanup finalizer: internal"
    assert "DeletedLoadBalancer" not in world.events.reasons()
    await world.reconcile()
    assert world.gone


async def test_a_lost_answer_to_the_release_ends_well(world: World) -> None:
    await world.reconciled()
    world.delete()
    world.api.script.then("patch_service_status", Lost(ApiError("cut", status=500)))
    await world.failed()
    await world.reconcile()
    assert world.gone
    assert world.cloud.changes() == ["DELETE"]


@pytest.mark.parametrize("verb", ["get", "delete"])
async def test_a_delete_that_was_put_off_is_waited_for(world: World, verb: str) -> None:
    await world.reconciled()
    world.delete()
    world.cloud.script.then(verb, RetryAfterError("still draining", 20))
    with pytest.raises(RetryAfterError) as caught:
        await world.reconcile()
    assert caught.value.delay == 20
    assert world.events.reasons()[-1] == "WaitingForLoadBalancer"
    assert world.finalizers == [CLEANUP_FINALIZER]


async def test_a_terminal_delete_is_handed_on_as_such(world: World) -> None:
    await world.reconciled()
    world.delete()
    world.cloud.script.then("delete", TerminalError("it is protected"))
    await world.failed(TerminalError)
    assert world.finalizers == [CLEANUP_FINALIZER]


async def test_a_delete_that_is_implemented_elsewhere_lets_the_service_go(world: World) -> None:
    await world.reconciled()
    world.delete()
    world.cloud.script.then("delete", ImplementedElsewhereError())
    await world.reconcile()
    assert world.gone


async def test_a_service_under_deletion_is_never_ensured(world: World) -> None:
    world.create(builders.finalizers("example.com/hold"), builders.deleting())
    await world.reconcile()
    assert (world.cloud.calls, world.api.patches, world.events.all) == ([], [], [])


async def test_a_service_deleted_before_the_finalizer_is_put_on_gets_no_load_balancer(world: World) -> None:
    world.create(builders.finalizers("example.com/hold"))
    world.hold_watch()
    world.delete()
    await world.reconcile()
    assert [one for one in world.events.all if one.type == "Warning"] == []
    world.release_watch()
    await world.reconcile()
    assert (world.cloud.calls, world.finalizers) == ([], ["example.com/hold"])


async def test_a_service_gone_before_the_finalizer_is_put_on_gets_no_load_balancer(world: World) -> None:
    world.create()
    world.hold_watch()
    world.delete()
    await world.reconcile()
    assert world.cloud.calls == []


async def test_a_service_gone_while_it_is_ensured_is_removed_at_once(world: World) -> None:
    world.create()
    answer = asyncio.Event()
    world.cloud.script.then("ensure", Late(answer))
    task = asyncio.create_task(world.reconcile())
    await asyncio.sleep(0.01)
    world.hold_watch()
    world.vanish()
    answer.set()
    await task
    assert world.cloud.changes() == ["CREATE", "DELETE"]
