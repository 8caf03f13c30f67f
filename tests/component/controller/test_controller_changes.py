"""Changes while something is under way."""

from __future__ import annotations

import asyncio

import pytest

from ccm_lb.objects import CLEANUP_FINALIZER
from ccm_lb.testing import builders
from ccm_lb.testing.script import Late
from tests.component.world import (
    CLUSTER,
    OTHER_UID,
    World,
    settle,
)

pytestmark = pytest.mark.looptime


@pytest.mark.scenario("B93")
async def test_a_change_during_an_ensure_is_ensured_afterwards() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        answer = world.slow("ensure")
        world.create()
        await settle()
        for number in range(81, 100):
            world.edit(builders.port(number))
        answer.set()
        await settle()
        assert [one.load_balancer.listeners[0][1] for one in world.cloud.mutations] == [80, 99]


async def test_a_node_change_during_an_ensure_is_not_lost() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        answer = world.slow("ensure")
        world.create()
        await settle()
        world.add_nodes("n4")
        await settle(60)
        answer.set()
        await settle()
        assert world.targets == ("n1", "n2", "n3", "n4")


async def test_a_node_change_during_an_update_is_not_lost() -> None:
    world = World()
    async with world.working():
        await world.served()
        answer = world.slow("update")
        world.add_nodes("n4")
        await settle(2)
        world.add_nodes("n5")
        await settle(60)
        answer.set()
        await settle()
        assert world.targets == ("n1", "n2", "n3", "n4", "n5")


async def test_a_deletion_during_an_ensure_follows_it() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        answer = world.slow("ensure")
        world.create()
        await settle()
        world.delete()
        await settle(60)
        answer.set()
        await settle()
        assert world.gone
        assert world.cloud.load_balancers == {}


async def test_a_status_wiped_while_ours_is_on_its_way_is_restored() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        answer = asyncio.Event()
        world.api.script.then("patch_service_status", None, Late(answer))
        world.create()
        await settle()
        world.edit(builders.published())
        await settle()
        answer.set()
        await settle()
        assert world.ingress


async def test_a_type_changed_before_the_finalizer_was_on_is_cleaned_up() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.hold_watch()
        service = world.api.create(builders.service_json())
        world.edit(builders.of_type("ClusterIP"))
        world.controller.on_event("services", "ADDED", service)
        await settle()
        world.release_watch()  # older than the answer to our patch
        await settle()
        assert world.finalizers == []
        assert world.cloud.load_balancers == {}


@pytest.mark.scenario("B76")
async def test_a_type_flipped_there_and_back_ends_with_a_new_load_balancer() -> None:
    world = World()
    async with world.working():
        await world.served()
        answer = world.slow("delete")
        world.edit(builders.of_type("NodePort"))
        await settle(0.2)
        world.hold_watch()
        world.edit(builders.of_type("LoadBalancer"))
        await settle(10)
        answer.set()
        await settle()
        world.release_watch()  # the flip back arrives after the answer to our patch
        await settle()
        assert world.cloud.changes() == ["DELETE", "CREATE"]
        assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]
        assert world.finalizers == [CLEANUP_FINALIZER]


async def test_a_service_created_again_before_its_first_patch_is_served() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.hold_watch()
        service = world.api.create(builders.service_json())
        world.delete()
        world.create(builders.uid(OTHER_UID))
        world.controller.on_event("services", "ADDED", service)
        await settle()
        world.release_watch()
        await settle()
        assert list(world.cloud.load_balancers) == [(CLUSTER, OTHER_UID)]
        assert world.ingress


async def test_a_service_created_again_while_its_end_is_asked_about_is_served() -> None:
    world = World()
    async with world.working():
        await world.served()
        answer = asyncio.Event()
        world.api.script.then("get_service", Late(answer))
        world.vanish()
        await settle()
        world.create(builders.uid(OTHER_UID))
        await settle()
        answer.set()
        await settle(1)
        assert list(world.cloud.load_balancers) == [(CLUSTER, OTHER_UID)]
