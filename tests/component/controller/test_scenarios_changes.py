"""Many changes at once, deletions at the worst moment, and Services as big as the API server takes them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random

import pytest

from ccm_lb.testing import builders
from ccm_lb.testing.memory import MemoryCloud
from tests.component.world import CLUSTER, UID, World, settle

pytestmark = pytest.mark.looptime
ROUNDS = 50
CYCLES = 100
PERIOD = 300.0  # seconds between two ticks of the resync, World's


@pytest.mark.scenario("B91")
async def test_a_new_port_and_a_new_node_within_milliseconds_both_arrive_every_time() -> None:
    chance = random.Random(91)
    world = World()
    async with world.working():  # which sees to it that no two changes of one load balancer overlap
        await world.served()
        for number in range(ROUNDS):
            node, port = f"n{10 + number}", 1000 + number
            answer = world.slow("ensure") if number % 2 else asyncio.Event()
            changes = [
                functools.partial(world.edit, builders.port(port)),
                functools.partial(world.add_nodes, node),
            ]
            chance.shuffle(changes)
            changes[0]()
            await settle(chance.random() * 0.005)
            changes[1]()
            await settle(2)
            answer.set()
            await settle(10)
            load_balancer = world.cloud.load_balancers[CLUSTER, UID]
            assert [listener[1] for listener in load_balancer.listeners] == [port]
            assert set(load_balancer.targets) == {"n1", "n2", "n3", node}
            world.api.delete(builders.node_json(node))
            await settle(10)
        assert "CREATE" not in world.cloud.changes()


@pytest.mark.scenario("B37")
async def test_a_service_that_is_deleted_as_the_resync_ticks_is_gone_at_once() -> None:
    chance = random.Random(37)
    world = World()
    world.cloud = MemoryCloud(pool="203.0.112.0/23")
    world.start_process()
    world.add_nodes()
    async with world.working():
        resync = asyncio.create_task(world.resync.keep())
        began = asyncio.get_running_loop().time()
        for _ in range(CYCLES):
            world.create()
            await settle(5)
            assert world.ingress
            elapsed = asyncio.get_running_loop().time() - began
            await asyncio.sleep(PERIOD - elapsed % PERIOD + chance.uniform(-0.05, 0.05))
            world.forget_history()
            world.delete()
            await settle(10)
            assert world.gone
            assert world.cloud.load_balancers == {}
            assert world.cloud.changes() == ["DELETE"]
        resync.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await resync


@pytest.mark.scenario("B94")
async def test_a_service_with_as_many_annotations_and_ports_as_there_may_be_is_served_and_gets_none_of_ours() -> None:
    big = {f"example.com/note-{number}": "x" * 2000 for number in range(100)}
    ports = [builders.port_json(8000 + number, 30000 + number, name=f"p{number}") for number in range(100)]
    world = World()
    world.add_nodes()
    async with world.working():
        world.create({"metadata": {"annotations": big}, "spec": {"ports": ports}})
        await settle(5)
        assert world.ingress
        assert len(world.cloud.load_balancers[CLUSTER, UID].listeners) == 100
        assert world.service["metadata"]["annotations"] == big
        assert not any("annotations" in patch.get("metadata", {}) for patch in world.api.patches)
