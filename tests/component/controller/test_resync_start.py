"""The start: what the watch has yet to deliver is waited for, then asked for."""

from __future__ import annotations

import asyncio

import pytest

from ccm_lb.controller.resync import FILL_PATIENCE, FRESH, Metadata, Resync
from ccm_lb.errors import ApiUnreachableError
from ccm_lb.objects import CLEANUP_FINALIZER, Key
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import FakeServices
from tests.component.world import KEY, OTHER_UID, World, settle

pytestmark = pytest.mark.looptime


async def test_the_start_waits_for_what_the_watch_has_yet_to_deliver() -> None:
    world = World()
    world.hold_watch()
    world.add_nodes()
    world.create(builders.finalizers())
    fill = asyncio.create_task(world.resync.fill())
    for _ in range(4):
        await settle(FILL_PATIENCE - 1)
        world.resync.seen()  # something else arrives
    assert not fill.done()
    world.release_watch()
    world.resync.seen()
    await settle()
    assert fill.done()
    await fill
    assert world.api.gets == []


async def test_the_start_asks_for_what_a_silent_watch_does_not_deliver() -> None:
    world = World()
    world.hold_watch()
    world.add_nodes()
    world.create(builders.finalizers())
    began = asyncio.get_running_loop().time()
    await world.resync.fill()
    assert asyncio.get_running_loop().time() - began == pytest.approx(FILL_PATIENCE, abs=0.1)
    assert world.state.services.get(KEY) is not None
    assert world.state.node_names() == ["n1", "n2", "n3"]


async def test_the_start_does_not_wait_for_services_that_are_not_ours() -> None:
    world = World(field_selector=True)
    world.create(builders.of_type("ClusterIP"))
    began = asyncio.get_running_loop().time()
    await world.resync.fill()
    assert asyncio.get_running_loop().time() == began


async def test_a_start_without_the_api_fails() -> None:
    world = World()
    world.api.script.then("list_node_metadata", ApiUnreachableError("refused"))
    with pytest.raises(ApiUnreachableError):
        await world.resync.fill()


async def test_after_the_start_a_service_seen_twice_is_served_once() -> None:
    world = World()
    world.hold_watch()
    world.add_nodes()
    world.create()
    world.api.create(builders.service_json(builders.named("other"), builders.uid(OTHER_UID), builders.finalizers()))
    await world.resync.fill()
    async with world.working():
        world.release_watch()
        await settle(5)
    assert world.cloud.changes() == ["CREATE", "CREATE"]
    other = world.api.object(Key("lb", "other"))
    assert other is not None
    assert other["metadata"]["finalizers"] == [CLEANUP_FINALIZER]


class Counted(FakeServices):
    """Counts the lists that are asked for, Services and nodes together being one."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    async def list_service_metadata(self, *, newest: bool = False) -> list[Metadata]:
        self.lists += 1
        return await super().list_service_metadata(newest=newest)


async def filled() -> tuple[Counted, Resync]:
    world, api = World(), Counted()
    resync = Resync(world.state, api, world.controller, 300.0)
    await resync.fill()
    return api, resync


async def test_a_replica_that_leads_at_once_does_not_compare_again() -> None:
    api, resync = await filled()
    before = api.lists
    await settle(FRESH / 2)
    await resync.catch_up()
    assert api.lists == before


async def test_a_replica_that_stood_by_compares_when_it_leads() -> None:
    api, resync = await filled()
    before = api.lists
    await settle(FRESH + 1)
    await resync.catch_up()
    assert api.lists == before + 1


async def test_a_comparison_that_failed_does_not_count() -> None:
    world, api = World(), Counted()
    resync = Resync(world.state, api, world.controller, 300.0)
    world.add_nodes()
    api.create(builders.service_json(builders.finalizers()))
    api.script.then("get_service", ApiUnreachableError("cut"))
    with pytest.raises(ApiUnreachableError):
        await resync.compare()
    before = api.lists
    await resync.catch_up()
    assert api.lists == before + 1
