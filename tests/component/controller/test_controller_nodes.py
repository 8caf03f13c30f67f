"""From a node event to the load balancers."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from ccm_lb.errors import CCMError
from ccm_lb.objects import EXCLUDE_LABEL, TO_BE_DELETED_TAINT
from ccm_lb.testing import builders
from ccm_lb.testing.memory import Call
from tests.component.world import (
    CLUSTER,
    DEBOUNCE,
    UPDATED,
    CallTimes,
    World,
    settle,
)

pytestmark = pytest.mark.looptime


async def test_node_changes_of_a_moment_are_one_update() -> None:
    world = World()
    async with world.working():
        await world.served()
        times = CallTimes(world, "update")
        world.add_nodes("n4")
        await settle(0.5)
        world.add_nodes("n5")
        await settle(60)
        assert times.all == [DEBOUNCE]
        assert world.events.lines() == [UPDATED]


async def test_a_stream_of_node_changes_does_not_put_the_update_off_for_ever() -> None:
    world = World()
    async with world.working():
        await world.served()
        times = CallTimes(world, "update")
        for number in range(4, 24):
            world.add_nodes(f"n{number}")
            await settle(0.4)
        assert times.all[0] == DEBOUNCE
        await settle(60)
        assert len(times.all) <= 9
        assert len(world.targets) == 23


@pytest.mark.scenario("B32")
@pytest.mark.parametrize(
    "tweak",
    [
        pytest.param(builders.labelled("team", "b"), id="label"),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, id="not-ready"),
        pytest.param({"spec": {"unschedulable": True}}, id="cordoned"),
        pytest.param(builders.labelled(EXCLUDE_LABEL, "false"), id="exclusion-false"),
    ],
)
async def test_noise_on_nodes_reaches_no_service(tweak: builders.Tweak) -> None:
    world = World()
    async with world.working():
        await world.served()
        starts = world.observer.starts
        world.api.edit(builders.node_json("n1"), tweak)
        await settle(60)
        assert world.observer.starts == starts


async def test_a_node_that_comes_and_goes_within_the_debounce_changes_nothing() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.add_nodes("n4")
        world.api.delete(builders.node_json("n4"))
        await settle(60)
        assert world.cloud.calls == []


@pytest.mark.scenario("B57")
async def test_a_node_that_is_first_seen_without_its_provider_id_ends_as_a_target_with_it() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.api.create(builders.node_json("n4", {"spec": {"providerID": None}}))
        await settle(1.5)
        world.api.edit(builders.node_json("n4"), {"spec": {"providerID": "fake://n4"}})
        world.api.edit(builders.node_json("n4"), builders.labelled("a", "b"))
        world.api.edit(builders.node_json("n4"), builders.labelled("a", None))
        await settle(60)
        assert world.cloud.verbs() == ["update", "update"]
        assert world.targets == ("n1", "n2", "n3", "n4")


@pytest.mark.scenario("B60")
@pytest.mark.parametrize(
    ("value", "included"), [("true", False), ("", False), ("junk", False), ("false", True)], ids=repr
)
async def test_the_exclusion_label_takes_a_node_out_unless_it_is_false(value: str, included: bool) -> None:  # noqa: FBT001 - a pytest parameter
    world = World()
    async with world.working():
        await world.served()
        world.api.edit(builders.node_json("n1"), builders.labelled(EXCLUDE_LABEL, value))
        await settle(5)
        assert ("n1" in world.targets) is included
        world.api.edit(builders.node_json("n1"), builders.labelled(EXCLUDE_LABEL, None))
        await settle(5)
        assert "n1" in world.targets


async def test_a_failed_update_is_followed_by_a_full_ensure_after_5_seconds() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.cloud.script.then("update", CCMError("409"))
        times = CallTimes(world, "ensure")
        world.add_nodes("n4")
        await settle(60)
        assert times.all == [DEBOUNCE + 5]
        assert world.targets == ("n1", "n2", "n3", "n4")


async def test_node_changes_do_not_shorten_a_backoff() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.cloud.script.then("update", CCMError("409"))
        world.cloud.script.then("ensure", *[CCMError("409")] * 6)
        times = CallTimes(world, "ensure")
        world.add_nodes("n4")
        for number in range(5, 25):
            await settle(2)
            world.add_nodes(f"n{number}")
        assert len(times.all) == 3  # 6, 16 and 36 seconds after n4


@pytest.mark.scenario("B10")
async def test_nodes_are_read_when_a_load_balancer_is_written_not_when_the_sweep_began() -> None:
    world = World()
    async with world.working(workers=1):
        world.add_nodes()
        for number in range(30):
            world.create(builders.named(f"s{number}"), builders.uid(f"uid-{number}"))
        await settle()
        world.forget_history()
        _each_update_takes(world, 2.0)
        world.api.delete(builders.node_json("n3"))
        await settle(5)
        world.add_nodes("n4")
        await settle(1)
        world.api.edit(builders.service_json(builders.named("s29")), builders.annotated("a/b", "c"))
        await settle(600)
        for number in range(30):
            sets = [one.load_balancer.targets for one in world.cloud.mutations if one.uid == f"uid-{number}"]
            seen = ["n4" in targets for targets in sets]
            assert seen == sorted(seen), "a node that was sent once was taken away again"
            assert world.cloud.load_balancers[CLUSTER, f"uid-{number}"].targets == ("n1", "n2", "n4")


def _each_update_takes(world: World, seconds: float) -> None:
    def delay(call: Call) -> None:
        if call.verb == "update":
            answer = asyncio.Event()
            asyncio.get_running_loop().call_later(seconds, answer.set)
            world.cloud.script.then("update", answer)

    world.cloud.on_call = delay


async def test_nodes_that_change_under_a_service_on_its_way_out_keep_nobody_busy() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.edit(builders.finalizers("example.com/hold"), builders.deleting())
        await settle(1)
        starts = world.observer.starts
        world.add_nodes("n4")
        await settle(60)
        assert world.observer.starts - starts <= 1


# ---- an address that is a node's, too


EXCLUDED = builders.labelled(EXCLUDE_LABEL, "")


@pytest.mark.scenario("B16")
@pytest.mark.parametrize("excluded", [False, True], ids=["a target", "no target"])
@pytest.mark.parametrize("leaves", [True, False], ids=["the node goes", "its address changes"])
async def test_an_address_that_a_node_gives_up_is_published_at_once(excluded: bool, leaves: bool) -> None:  # noqa: FBT001
    world = World()
    async with world.working():
        world.add_nodes()
        taken = builders.node_json("n4", builders.addresses("203.0.113.1"), *([EXCLUDED] if excluded else []))
        world.api.create(taken)
        world.create()
        await settle(5)
        assert world.ingress == []
        world.forget_history()

        if leaves:
            world.api.delete(taken)
        else:
            world.api.edit(taken, builders.addresses("192.0.2.14"))
        await settle(DEBOUNCE + 1)
        assert [one["ip"] for one in world.ingress] == ["203.0.113.1"]


@pytest.mark.scenario("B16")
async def test_of_two_addresses_the_one_that_a_node_gives_up_is_published_beside_the_other() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.api.create(taken := builders.node_json("n4", builders.addresses("203.0.113.1"), EXCLUDED))
        world.create(builders.families("IPv4", "IPv6"))
        await settle(5)
        assert [one["ip"] for one in world.ingress] == ["2001:db8:f::1"]
        world.api.delete(taken)
        await settle(1)
        assert [one["ip"] for one in world.ingress] == ["203.0.113.1", "2001:db8:f::1"]


@pytest.mark.scenario("B16")
async def test_other_changes_of_nodes_are_no_reason_to_try_a_refused_address_again() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.api.create(taken := builders.node_json("n4", builders.addresses("203.0.113.1"), EXCLUDED))
        world.create()
        await settle(5)
        world.forget_history()
        world.api.edit(taken, builders.labelled("team", "b"))
        world.add_nodes("n5")
        await settle(60)
        assert world.cloud.calls == []
        assert world.ingress == []


# ---- nodes that the cluster autoscaler is about to delete


async def test_a_node_that_is_about_to_go_is_taken_out_at_once_where_nobody_drains_it() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.api.edit(builders.node_json("n1"), builders.tainted(TO_BE_DELETED_TAINT))
        await settle(5)
        assert world.targets == ("n2", "n3")


def drained() -> World:
    """With a cloud whose health check asks kube-proxy."""
    world = World()
    world.cloud.traffic = dataclasses.replace(world.cloud.traffic, probes_ask_kube_proxy=True)
    return world


def targets(world: World) -> list[str]:
    return list(world.targets)


async def test_where_kube_proxy_is_asked_it_stays_until_it_is_gone_whatever_else_happens() -> None:
    world = drained()
    async with world.working():
        await world.served()
        world.api.edit(builders.node_json("n1"), builders.tainted(TO_BE_DELETED_TAINT))
        await settle(60)
        assert world.cloud.calls == []
        world.add_nodes("n4")
        world.edit(builders.port(81))
        await settle(5)
        assert targets(world) == ["n1", "n2", "n3", "n4"], "taking it out would cut what goes on through it"
        world.api.delete(builders.node_json("n1"))
        await settle(5)
        assert targets(world) == ["n2", "n3", "n4"]


async def test_a_restart_does_not_take_it_out_either() -> None:
    world = drained()
    async with world.working():
        await world.served()
    world.api.edit(builders.node_json("n1"), builders.tainted(TO_BE_DELETED_TAINT))
    world.start_process()
    world.list_everything()
    async with world.working():
        await settle(5)
        assert targets(world) == ["n1", "n2", "n3"]
        assert world.cloud.changes() == []
