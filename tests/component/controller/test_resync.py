"""The resync: what a list shows is held against what is known; it repairs and never destroys."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from ccm_lb.controller.resync import MAX_GETS, RELIST_PAUSE, RETRY_PAUSE
from ccm_lb.errors import ApiError, ApiUnreachableError
from ccm_lb.testing import builders
from ccm_lb.testing.script import Late
from tests.component.world import CLUSTER, DELETED, DELETING, OTHER_UID, UID, World, settle

pytestmark = pytest.mark.looptime


@contextlib.asynccontextmanager
async def keeping(world: World) -> AsyncIterator[None]:
    """The resync runs inside the block."""
    task = asyncio.create_task(world.resync.keep())
    await settle()
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# ---- what is repaired


async def test_nothing_is_asked_for_while_nothing_differs() -> None:
    world = World()
    async with world.working():
        await world.served()
        await world.resync.compare()
        assert world.api.gets == []


@pytest.mark.scenario("B03")
async def test_what_vanished_unseen_is_cleaned_up() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.hold_watch()  # and what happens from now on never arrives
        world.vanish()
        world.api.delete(builders.node_json("n2"))
        world.add_nodes("n4")
        await world.resync.compare()
        await settle(5)
        assert world.cloud.load_balancers == {}
        assert world.events.lines() == [DELETING, DELETED]
        assert [node.name for node in world.state.eligible_nodes()] == ["n1", "n3", "n4"]


@pytest.mark.scenario("B03")
async def test_what_changed_unseen_is_caught_up_with() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.hold_watch()  # and what happens from now on never arrives
        world.edit(builders.port(81))
        world.api.delete(builders.node_json("n2"))
        world.add_nodes("n4")
        await world.resync.compare()
        await settle(5)
        assert world.targets == ("n1", "n3", "n4")
        assert world.cloud.load_balancers[CLUSTER, UID].listeners == (("TCP", 81, 30080),)


async def test_a_service_created_again_unseen_is_two_services() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.hold_watch()  # and what happens from now on never arrives
        world.vanish()
        world.create(builders.uid(OTHER_UID))
        await world.resync.compare()
        await settle()
        assert list(world.cloud.load_balancers) == [(CLUSTER, OTHER_UID)]


@pytest.mark.scenario("B35")
async def test_a_finalizer_left_on_a_service_off_the_watch_is_found() -> None:
    world = World(field_selector=True)
    async with world.working():
        await world.served()
    world.edit(builders.of_type("ClusterIP"))
    world.start_process()
    world.list_everything()
    async with world.working():
        await world.resync.compare()
        await settle()
        assert world.finalizers == []
        assert world.cloud.load_balancers == {}


async def test_other_services_off_the_watch_are_not_asked_for() -> None:
    world = World(field_selector=True)
    world.create(builders.of_type("ClusterIP"))
    await world.resync.compare()
    assert world.api.gets == []


# ---- what is not destroyed


async def test_an_object_that_a_list_lacks_is_asked_for_and_kept_if_it_lives() -> None:
    world = World()
    async with world.working():
        await world.served()
        # A list from a stale cache: everything is missing in it.
        stale = World()
        stale.resync = type(world.resync)(world.state, Stale(world, stale), world.controller, 300.0)
        await stale.resync.compare()
        await settle(60)
        assert sorted(map(str, world.api.gets)) == ["lb/web", "n1", "n2", "n3"]
        assert world.cloud.calls == []


class Stale:
    """Lists of one world, objects of another."""

    def __init__(self, objects: World, lists: World) -> None:
        self.get_service = objects.api.get_service
        self.get_node = objects.api.get_node
        self.list_service_metadata = lists.api.list_service_metadata
        self.list_node_metadata = lists.api.list_node_metadata


@pytest.mark.parametrize("resource", ["services", "nodes"])
async def test_a_404_that_arrives_after_the_object_was_made_again_is_not_believed(resource: str) -> None:
    world = World()
    async with world.working():
        await world.served()
        world.hold_watch()  # and what happens from now on never arrives
        answer = asyncio.Event()
        if resource == "services":
            world.api.script.then("get_service", Late(answer))
            world.vanish()
        else:
            world.api.script.then("get_node", Late(answer))
            world.api.delete(builders.node_json("n2"))
        compare = asyncio.create_task(world.resync.compare())
        await settle()
        world.release_watch()
        world.create(builders.uid(OTHER_UID)) if resource == "services" else world.add_nodes("n2")
        answer.set()
        await compare
        await settle(5)
        assert world.targets == ("n1", "n2", "n3")


async def test_a_failed_get_is_no_statement() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.hold_watch()  # and what happens from now on never arrives
        world.vanish()
        world.api.script.then("get_service", ApiError("etcd is slow", status=500))
        with pytest.raises(ApiError):
            await world.resync.compare()
        assert world.cloud.calls == []


async def test_no_more_than_a_few_objects_are_asked_for_at_a_time() -> None:
    world = World()
    for number in range(1, 41):
        world.api.create(builders.node_json(f"n{number}"))
    world.start_process()
    answer = asyncio.Event()
    world.api.script.then("get_node", *[Late(answer)] * 40)
    compare = asyncio.create_task(world.resync.compare())
    await settle()
    assert len(world.api.gets) == MAX_GETS
    answer.set()
    await compare
    assert len(world.state.node_names()) == 40


# ---- when


def lists(world: World) -> list[float]:
    """The times, in seconds from now, at which Services are listed."""
    began = asyncio.get_running_loop().time()
    times: list[float] = []
    original = world.api.list_service_metadata

    class Timed:
        get_service, get_node = world.api.get_service, world.api.get_node
        list_node_metadata = world.api.list_node_metadata

        async def list_service_metadata(self) -> list[Mapping[str, Any]]:
            times.append(round(asyncio.get_running_loop().time() - began, 1))
            return await original()

    world.resync = type(world.resync)(world.state, Timed(), world.controller, 300.0)
    return times


async def test_it_compares_every_period() -> None:
    world = World()
    times = lists(world)
    async with keeping(world):
        await settle(1000)
    assert times == [300, 600, 900]


async def test_after_lists_of_the_watch_it_compares_once_when_the_last_one_is_over() -> None:
    world = World()
    times = lists(world)
    async with keeping(world):
        for _ in range(10):
            world.resync.soon()
            await asyncio.sleep(0.5)
        await settle(100)
    assert times == [4.5 + RELIST_PAUSE]


async def test_an_ordinary_event_is_no_reason_to_compare() -> None:
    world = World()
    times = lists(world)
    async with keeping(world):
        world.resync.seen()
        await settle(100)
    assert times == []


@pytest.mark.parametrize(
    "error", [ApiError("etcd is slow", status=500), ApiUnreachableError("refused")], ids=["refused", "unreachable"]
)
async def test_a_failure_is_repeated_soon(error: Exception) -> None:
    world = World()
    times = lists(world)
    world.api.script.then("list_service_metadata", error, error)
    async with keeping(world):
        world.resync.soon(0.1)
        await settle(100)
    assert times == pytest.approx([0.1, 0.1 + RETRY_PAUSE, 0.1 + 2 * RETRY_PAUSE], abs=0.11)
