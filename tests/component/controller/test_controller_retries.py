"""When a Service is worked on again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.errors import ApiError, CCMError, ImplementedElsewhereError, RetryAfterError, TerminalError
from ccm_lb.objects import CLEANUP_FINALIZER
from ccm_lb.testing import builders
from tests.component.world import (
    OTHER_UID,
    CallTimes,
    World,
    settle,
)

pytestmark = pytest.mark.looptime


async def test_a_failure_is_repeated_after_5_seconds_doubling_to_300() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        times = CallTimes(world, "ensure")
        world.cloud.script.then("ensure", *[CCMError("no")] * 9)
        world.create()
        await settle(2000)
        assert times.gaps() == [
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
        times = CallTimes(world, "ensure")
        world.edit(builders.port(81))
        await settle(100)
        assert times.all == [0, 5]


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


async def test_a_stripped_finalizer_skips_the_wait() -> None:
    world = World()
    async with world.working():
        await world.served()
        world.cloud.script.then("ensure", *[CCMError("no")] * 7)
        world.edit(builders.port(81))
        await settle(400)
        world.edit({"metadata": {"finalizers": None}})
        await settle()
        assert world.finalizers == [CLEANUP_FINALIZER]


async def test_our_own_finalizer_and_status_coming_back_do_not_skip_the_wait() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        times = CallTimes(world, "ensure")
        world.hold_watch()
        world.controller.on_event("services", "ADDED", world.api.create(builders.service_json()))
        world.api.script.then("patch_service_status", None, ApiError("internal", status=500))
        await settle()
        world.release_watch()  # the finalizer comes back while the status waits to be tried again
        await settle(4.9)
        assert times.all == [0]
        await settle(1)
        assert times.all == [0, 5]


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
        times = CallTimes(world, verb)
        acts[verb]()
        await settle(100)
        assert times.gaps() == [17, 17]
        assert "SyncLoadBalancerFailed" not in world.events.reasons()


async def test_a_pause_that_the_backend_asks_for_neither_grows_nor_resets_the_backoff() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        no, busy = CCMError("no"), RetryAfterError("busy", 1)
        world.cloud.script.then("ensure", no, busy, no, busy, no)
        times = CallTimes(world, "ensure")
        world.create()
        await settle(100)
        assert times.all == [0, 5, 6, 16, 17, 37]


async def test_a_terminal_error_waits_for_a_change_and_at_most_300_seconds() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.cloud.script.then("ensure", TerminalError("no such protocol"), TerminalError("no such protocol"))
        times = CallTimes(world, "ensure")
        world.create()
        await settle(299)
        assert times.all == [0]
        await settle(2)
        assert times.all == [0, 300]
        world.edit(builders.port(81))
        await settle()
        assert world.ingress


async def test_a_bad_annotation_is_said_and_put_right_at_once() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.create(builders.annotated(ccm_annotations.PROXY_PROTOCOL, "v3"))
        await settle()
        assert world.events.all[-1].message.startswith("Error syncing load balancer: failed to ensure load balancer: ")
        world.edit(builders.annotated(ccm_annotations.PROXY_PROTOCOL, "v2"))
        await settle()
        assert world.ingress == [{"ip": "203.0.113.1", "ipMode": "Proxy"}]


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


async def test_a_service_that_is_implemented_elsewhere_is_let_go_when_it_goes() -> None:
    world = World()
    async with world.working():
        world.add_nodes()
        world.create()
        await settle()
        world.cloud.script.then("get", *[ImplementedElsewhereError()] * 100)
        world.delete()
        await settle()
        assert world.gone
