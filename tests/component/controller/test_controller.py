"""The controller on virtual time: the usual way, and what is served at all."""

from __future__ import annotations

import asyncio

import pytest

from ccm_lb.controller.predicates import Scope
from ccm_lb.errors import NotLeaderError
from ccm_lb.testing import builders
from tests.component.world import (
    CHOSEN,
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    KEY,
    OTHER_UID,
    World,
    settle,
)

pytestmark = pytest.mark.looptime

# ---- the usual way


async def test_a_service_is_served_changed_and_deleted() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.create()
        await settle()
        assert world.ingress == [{"ip": "203.0.113.1", "ipMode": "Proxy"}]
        world.edit(builders.port(81))
        await settle()
        world.delete()
        await settle()
        assert world.gone
    assert world.cloud.changes() == ["CREATE", "UPDATE", "DELETE"]
    assert world.events.lines() == [ENSURING, ENSURED, CHOSEN, ENSURING, ENSURED, DELETING, DELETED]


@pytest.mark.scenario("B92")
async def test_what_the_controller_writes_itself_is_no_reason_to_do_anything() -> None:
    world = World()
    async with world.working():
        await world.served()
        starts = world.observer.starts
        await settle(600)
        assert world.cloud.calls == []
        assert world.api.patches == []
        assert world.observer.starts == starts


@pytest.mark.scenario("B92")
@pytest.mark.parametrize(
    "tweak",
    [
        pytest.param(builders.labelled("team", "b"), id="label"),
        pytest.param({"status": {"conditions": [{"type": "Other", "status": "True"}]}}, id="condition"),
    ],
)
async def test_a_change_that_no_load_balancer_depends_on_changes_nothing(tweak: builders.Tweak) -> None:
    world = World()
    async with world.working():
        await world.served()
        world.edit(tweak)
        await settle(600)
        assert (world.cloud.calls, world.api.patches) == ([], [])


async def test_a_service_needs_two_patches_to_be_served() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.create()
        await settle(600)
        assert len(world.api.patches) == 2


async def test_nothing_is_done_before_the_lease_is_held() -> None:
    world = World()
    world.add_nodes()
    world.create()
    await settle(600)
    assert (world.cloud.calls, world.api.patches) == ([], [])
    async with world.working():
        await settle()
        assert world.ingress


async def test_a_stopped_controller_finishes_what_it_works_on_and_begins_nothing() -> None:
    world = World()
    world.add_nodes()
    answer = asyncio.Event()
    world.cloud.script.then("ensure", answer)
    work = asyncio.create_task(world.controller.work(1))
    await settle()
    world.create()
    world.create(builders.named("second"), builders.uid(OTHER_UID))
    await settle()
    world.controller.stop()
    await settle(100)
    assert not work.done()
    answer.set()
    await work
    assert world.ingress
    assert len(world.cloud.calls) == 1


async def test_different_services_are_worked_on_at_the_same_time() -> None:
    world = World()
    world.add_nodes()
    answers = asyncio.Event()
    world.cloud.script.then("ensure", answers, answers)
    async with world.working(workers=2):
        world.create()
        world.create(builders.named("second"), builders.uid(OTHER_UID))
        await settle()
        assert world.cloud.verbs() == ["ensure", "ensure"]
        answers.set()


async def test_an_object_that_cannot_be_read_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    async with world.working():
        await world.served()
        unreadable: list[builders.Json] = [{}, {"metadata": {}}, {"metadata": {"name": "web"}, "spec": {"ports": 7}}]
        for broken in unreadable:
            world.controller.on_event("services", "MODIFIED", broken)
            world.controller.on_event("nodes", "MODIFIED", {**broken, "spec": 7})
        await settle()
        assert world.cloud.calls == []
    assert {record.getMessage() for record in caplog.records} == {"an object of the API server cannot be read"}


# ---- restarts and scope


@pytest.mark.scenario("B07")
async def test_a_restart_with_nothing_changed_changes_nothing_and_says_nothing() -> None:
    world = World()
    async with world.working():
        await world.served()
    world.start_process()
    world.list_everything()
    async with world.working():
        await settle(600)
        assert world.cloud.verbs() == ["ensure"]
        assert (world.cloud.changes(), world.api.patches, world.events.all) == ([], [], [])


@pytest.mark.scenario("B84")
@pytest.mark.parametrize(
    ("scope", "load_balancer_class", "served"),
    [
        pytest.param(Scope(), None, True, id="default-unset"),
        pytest.param(Scope(), "example.com/other", False, id="default-foreign"),
        pytest.param(Scope(frozenset({"example.com/ours"})), "example.com/ours", True, id="ours"),
        pytest.param(Scope(frozenset({"example.com/ours"}), unclassed=False), None, False, id="ours-only-unset"),
        pytest.param(Scope(frozenset({"a/b", "c/d"})), "c/d", True, id="one-of-several"),
    ],
)
async def test_only_services_of_our_classes_are_served(
    scope: Scope,
    load_balancer_class: str | None,
    served: bool,  # noqa: FBT001 - a pytest parameter
) -> None:
    world = World(scope)
    async with world.working():
        world.add_nodes()
        world.create(builders.of_class(load_balancer_class))
        await settle(60)
        assert bool(world.ingress) is served
        assert bool(world.cloud.calls) is served
        assert bool(world.events.all) is served


async def test_not_leader_from_the_backend_is_no_warning() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", NotLeaderError("the Lease ran out"))
        world.create()
        await settle(4)
        assert world.events.lines() == [ENSURING]
        await settle(10)
        assert world.ingress


async def test_a_service_that_a_get_found_gone_is_cleaned_up() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.hold_watch()
        world.vanish()
        world.controller.vanished_service(KEY, world.state.services.version(KEY))
        await settle()
        assert world.cloud.changes() == ["DELETE"]


async def test_a_node_that_a_get_found_gone_leaves_the_targets() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.hold_watch()
        world.api.delete(builders.node_json("n2"))
        world.controller.vanished_node("n2", world.state.node_version("n2"))
        await settle(5)
        assert world.targets == ("n1", "n3")
