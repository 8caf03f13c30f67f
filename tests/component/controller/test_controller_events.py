"""Events that come again, late, out of order, or through the field selector."""

from __future__ import annotations

import pytest

from ccm_lb.objects import CLEANUP_FINALIZER
from ccm_lb.testing import builders
from tests.component.world import (
    CHOSEN,
    CLUSTER,
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    OTHER_UID,
    UID,
    World,
    settle,
)

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("times", [1, 3])
async def test_an_event_that_comes_again_changes_nothing(times: int) -> None:
    world = World()
    async with world.working():
        await world.served()
        for _ in range(times):
            world.controller.on_event("services", "MODIFIED", world.service)
            world.controller.on_event("services", None, world.service)
        await settle(60)
        assert world.cloud.calls == []


async def test_an_older_event_does_not_bring_back_what_it_shows() -> None:
    world = World()
    async with world.working():
        await world.served()
        old = world.service
        world.edit(builders.port(81))
        world.controller.on_event("services", "MODIFIED", old)
        await settle(60)
        assert [one.load_balancer.listeners[0][1] for one in world.cloud.mutations] == [81]


async def test_an_event_of_a_deleted_service_does_not_bring_it_back() -> None:
    world = World()
    async with world.working():
        await world.served()
        old = world.service
        world.delete()
        await settle()
        world.forget_history()
        world.controller.on_event("services", "MODIFIED", old)
        world.controller.on_event("services", "DELETED", old)
        await settle(60)
        assert world.cloud.calls == []


async def test_an_older_end_does_not_hide_what_was_seen_since() -> None:
    # Through the field selector a type that was flipped there and back ends in between.
    world = World()
    world.add_nodes()
    ended = world.api.create(builders.service_json())
    world.edit(builders.labelled("a", "b"))
    world.controller.on_event("services", "DELETED", ended)
    async with world.working():
        await settle()
        assert world.ingress


async def test_the_end_of_the_old_one_does_not_touch_the_new_one_of_that_name() -> None:
    world = World()
    async with world.working():
        await world.served()
        old = world.service
        world.vanish()
        world.create(builders.uid(OTHER_UID))
        await settle()
        world.controller.on_event("services", "DELETED", old)
        await settle(60)
        assert list(world.cloud.load_balancers) == [(CLUSTER, OTHER_UID)]
        assert world.cloud.changes() == ["DELETE", "CREATE"]


@pytest.mark.scenario("B46")
async def test_a_service_deleted_and_created_again_is_two_services() -> None:
    world = World()
    async with world.working():
        await world.served()
        answer = world.slow("delete")
        world.vanish()
        world.create(builders.uid(OTHER_UID), builders.port(81))
        await settle(20)
        answer.set()
        await settle(1)
        assert [(one.verb, one.uid) for one in world.cloud.mutations] == [("DELETE", UID), ("CREATE", OTHER_UID)]
        assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]


@pytest.mark.parametrize("field_selector", [False, True], ids=["full-watch", "field-selector"])
@pytest.mark.parametrize("to", ["ClusterIP", "NodePort"])
async def test_a_type_change_and_back_is_followed(field_selector: bool, to: str) -> None:  # noqa: FBT001 - a pytest parameter
    world = World(field_selector=field_selector)
    async with world.working():
        await world.served()
        world.edit(builders.of_type(to))
        await settle(1)
        assert (world.finalizers, world.ingress, world.cloud.load_balancers) == ([], [], {})
        world.edit(builders.of_type("LoadBalancer"))
        await settle(1)
        assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]
    assert world.events.lines() == [DELETING, DELETED, ENSURING, ENSURED, CHOSEN.replace("113.1", "113.2")]


async def test_a_real_deletion_through_the_field_selector_is_cleaned_up_once() -> None:
    world = World(field_selector=True)
    async with world.working():
        await world.served()
        world.delete()
        await settle(60)
        assert world.gone
        assert world.cloud.verbs() == ["get", "delete"]


@pytest.mark.scenario("B38")
async def test_a_stripped_finalizer_comes_back() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.edit({"metadata": {"finalizers": None}})
        await settle(1)
        assert world.finalizers == [CLEANUP_FINALIZER]


@pytest.mark.scenario("B38")
async def test_a_service_stripped_and_deleted_at_once_leaves_nothing() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.vanish()
        await settle(1)
        assert world.cloud.changes() == ["DELETE"]


async def test_a_status_that_somebody_wipes_is_restored_at_once() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.edit(builders.published())
        await settle(1)
        assert [one["ip"] for one in world.ingress] == ["203.0.113.1"]
