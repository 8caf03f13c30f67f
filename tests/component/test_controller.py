"""The controller on virtual time: what is worked on, when, and when again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.errors import ApiError, CCMError, ImplementedElsewhereError, NotLeaderError, RetryAfterError, TerminalError
from ccm_lb.objects import CLEANUP_FINALIZER, EXCLUDE_LABEL
from ccm_lb.predicates import Scope
from ccm_lb.testing import builders
from ccm_lb.testing.script import Late
from tests.component.world import (
    CLUSTER,
    DEBOUNCE,
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    KEY,
    OTHER_UID,
    UID,
    UPDATED,
    World,
    settle,
)

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


def call_times(world: World, verb: str) -> list[float]:
    """Write down when the cloud is called from now on, in seconds from now."""
    began, times = now(), []
    record = world.cloud.calls

    class Timed(list):  # type: ignore[type-arg]
        def append(self, call: object) -> None:
            super().append(call)
            if call.verb == verb:  # type: ignore[attr-defined]
                times.append(round(now() - began, 3))

    world.cloud.calls = Timed(record)
    return times


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
    assert world.events.lines() == [ENSURING, ENSURED, ENSURING, ENSURED, DELETING, DELETED]


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


# ---- failures


async def test_a_failure_is_repeated_after_5_seconds_doubling_to_300() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        times = call_times(world, "ensure")
        world.cloud.script.then("ensure", *[CCMError("no")] * 9)
        world.create()
        await settle(2000)
        assert [round(after - before) for before, after in itertools.pairwise(times)] == [
            5, 10, 20, 40, 80, 160, 300, 300, 300,
        ]  # fmt: skip
        assert world.ingress


@pytest.mark.scenario("B15")
async def test_a_service_that_cannot_succeed_is_tried_six_times_in_five_minutes() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", *[CCMError("422")] * 50)
        world.create()
        await settle(300)
        assert len(world.cloud.calls) == 6
        world.create(builders.named("healthy"), builders.uid(OTHER_UID))
        before = len(world.cloud.calls)
        world.cloud.script.forget()
        await settle()
        assert len(world.cloud.calls) == before + 1


async def test_success_sets_the_pause_back() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", *[CCMError("no")] * 4, None, CCMError("no"))
        world.create()
        await settle(100)
        assert world.ingress
        times = call_times(world, "ensure")
        world.edit(builders.port(81))
        await settle(100)
        assert times == [0, 5]


@pytest.mark.scenario("B30")
async def test_everything_converges_300_seconds_after_an_outage() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", *[CCMError("503")] * 1000)
        world.create()
        await settle(2400)
        world.cloud.script.forget()
        await settle(300)
        assert world.ingress


@pytest.mark.parametrize(
    "tweak", [builders.port(81), builders.annotated("a/b", "c"), {"spec": {"loadBalancerIP": "203.0.113.9"}}], ids=str
)
async def test_a_change_of_the_service_skips_the_wait(tweak: builders.Tweak) -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", *[CCMError("no")] * 7)
        world.create()
        await settle(400)
        assert world.ingress == []
        world.edit(tweak)
        await settle()
        assert world.ingress


async def test_deletion_skips_the_wait() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", *[CCMError("no")] * 8)
        world.create()
        await settle(400)
        world.delete()
        await settle()
        assert world.gone


async def test_our_own_finalizer_and_status_coming_back_do_not_skip_the_wait() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        times = call_times(world, "ensure")
        world.hold_watch()
        world.controller.on_event("services", "ADDED", world.api.create(builders.service_json()))
        world.api.script.then("patch_service_status", None, ApiError("internal", status=500))
        await settle()
        world.release_watch()  # the finalizer comes back while the status waits to be tried again
        await settle(4.9)
        assert times == [0]
        await settle(1)
        assert times == [0, 5]


@pytest.mark.parametrize("verb", ["ensure", "update", "delete"])
async def test_a_pause_that_the_backend_asks_for_is_kept_exactly(verb: str) -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.create()
        await settle()
        acts: dict[str, Callable[[], None]] = {
            "ensure": lambda: world.edit(builders.port(81)),
            "update": lambda: world.add_nodes("n4"),
            "delete": world.delete,
        }
        world.cloud.script.then(verb, RetryAfterError("busy", 17), RetryAfterError("busy", 17))
        times = call_times(world, verb)
        acts[verb]()
        await settle(100)
        assert [round(after - before) for before, after in itertools.pairwise(times)] == [17, 17]
        assert "SyncLoadBalancerFailed" not in world.events.reasons()


async def test_a_pause_that_the_backend_asks_for_neither_grows_nor_resets_the_backoff() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        no, busy = CCMError("no"), RetryAfterError("busy", 1)
        world.cloud.script.then("ensure", no, busy, no, busy, no)
        times = call_times(world, "ensure")
        world.create()
        await settle(100)
        assert times == [0, 5, 6, 16, 17, 37]


async def test_a_terminal_error_waits_for_a_change_and_at_most_300_seconds() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", TerminalError("no such protocol"), TerminalError("no such protocol"))
        times = call_times(world, "ensure")
        world.create()
        await settle(299)
        assert times == [0]
        await settle(2)
        assert times == [0, 300]
        world.edit(builders.port(81))
        await settle()
        assert world.ingress


async def test_a_bad_annotation_is_said_and_put_right_at_once() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.create(builders.annotated(ccm_annotations.IP_MODE, "proxy"))
        await settle()
        assert world.events.all[-1].message.startswith("Error syncing load balancer: failed to ensure load balancer: ")
        world.edit(builders.annotated(ccm_annotations.IP_MODE, "VIP"))
        await settle()
        assert world.ingress == [{"ip": "203.0.113.1", "ipMode": "VIP"}]


@pytest.mark.scenario("B90")
async def test_a_lost_lease_sends_nothing_and_a_renewed_one_goes_on() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.fence.held = False
        world.create()
        await settle(4)
        assert (world.api.patches, world.cloud.calls) == ([], [])
        world.fence.held = True
        await settle(10)
        assert world.ingress


async def test_a_service_that_is_implemented_elsewhere_is_left_in_peace_also_when_it_goes() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.create()
        await settle()
        world.cloud.script.then("get", *[ImplementedElsewhereError()] * 100)
        world.delete()
        await settle(1000)
        assert world.finalizers == [CLEANUP_FINALIZER]
        assert len(world.cloud.calls) == 2


# ---- changes while something is under way


async def slow(world: World, verb: str) -> asyncio.Event:
    answer = asyncio.Event()
    world.cloud.script.then(verb, answer)
    return answer


@pytest.mark.scenario("B93")
async def test_a_change_during_an_ensure_is_ensured_afterwards() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        answer = await slow(world, "ensure")
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
        answer = await slow(world, "ensure")
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
        answer = await slow(world, "update")
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
        answer = await slow(world, "ensure")
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
        answer = await slow(world, "delete")
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


# ---- events in any order


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
        answer = await slow(world, "delete")
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
    assert world.events.lines() == [DELETING, DELETED, ENSURING, ENSURED]


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


# ---- nodes


async def test_node_changes_of_a_moment_are_one_update() -> None:
    world = World()
    async with world.working():
        await world.served()
        times = call_times(world, "update")
        world.add_nodes("n4")
        await settle(0.5)
        world.add_nodes("n5")
        await settle(60)
        assert times == [DEBOUNCE]
        assert world.events.lines() == [UPDATED]


async def test_a_stream_of_node_changes_does_not_put_the_update_off_for_ever() -> None:
    world = World()
    async with world.working():
        await world.served()
        times = call_times(world, "update")
        for number in range(4, 24):
            world.add_nodes(f"n{number}")
            await settle(0.4)
        assert times[0] == DEBOUNCE
        await settle(60)
        assert len(times) <= 9
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
        times = call_times(world, "ensure")
        world.add_nodes("n4")
        await settle(60)
        assert times == [DEBOUNCE + 5]
        assert world.targets == ("n1", "n2", "n3", "n4")


async def test_node_changes_do_not_shorten_a_backoff() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.cloud.script.then("update", CCMError("409"))
        world.cloud.script.then("ensure", *[CCMError("409")] * 6)
        times = call_times(world, "ensure")
        world.add_nodes("n4")
        for number in range(5, 25):
            await settle(2)
            world.add_nodes(f"n{number}")
        assert len(times) == 3  # 6, 16 and 36 seconds after n4


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
    loop = asyncio.get_running_loop()

    def slow_call() -> asyncio.Event:
        event = asyncio.Event()
        loop.call_later(seconds, event.set)
        return event

    class Slow(type(world.cloud.script)):  # type: ignore[misc]
        def play(self, verb: str) -> object:
            if verb == "update":
                self.then("update", slow_call())
            return super().play(verb)

    world.cloud.script = Slow()


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
