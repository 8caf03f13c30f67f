"""Load balancers that no Service wants: which ones they are, in which order that is asked, and when they go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.actual import ActualLoadBalancer
from ccm_lb.controller import orphans
from ccm_lb.controller.drift import DriftPolicy, Mode
from ccm_lb.errors import ApiUnreachableError, CCMError
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak
from ccm_lb.testing.fakes import FakeServices
from ccm_lb.testing.memory import MemoryLoadBalancer
from tests.component.world import CLUSTER, OTHER_UID, UID, World, settle

PERIOD, GRACE = 300.0, 3600.0
LEFT = MemoryLoadBalancer("a1", {"IPv4": "203.0.113.77"}, (("TCP", 80, 30080),), (), service="lb/old")


def shown(uid: str = UID) -> ActualLoadBalancer:
    return ActualLoadBalancer("lb-1", uid, ("203.0.113.1",), {}, "lb/web")


async def found(*services: Tweak, uid: str = UID) -> list[str]:
    api = FakeServices()
    for tweak in services:
        api.create(builders.service_json(tweak))
    return [one.why for one in await orphans.find([shown(uid)], api)]


async def test_a_service_that_is_gone_leaves_an_orphan() -> None:
    assert await found() == ["its Service lb/web is gone"]
    assert await found(builders.uid(OTHER_UID)) == ["its Service lb/web is gone"], "the name says nothing"


@pytest.mark.parametrize(
    "tweak",
    [
        pytest.param({}, id="not seen by a controller yet"),
        pytest.param(builders.of_class("example.com/another"), id="another installation's"),
        pytest.param(builders.merged(builders.of_type("ClusterIP"), builders.finalizers()), id="with a finalizer"),
        pytest.param(
            builders.merged(builders.of_type("ClusterIP"), builders.annotated("ccm-lb.dev/paused", "true")), id="paused"
        ),
        pytest.param(
            builders.merged(builders.of_type("ClusterIP"), builders.annotated(ccm_annotations.KEEP, "true")), id="kept"
        ),
    ],
)
async def test_a_service_that_may_want_it_leaves_none(tweak: Tweak) -> None:
    assert await found(tweak) == []


async def test_a_service_that_changed_its_type_and_lost_its_finalizer_leaves_an_orphan() -> None:
    assert await found(builders.of_type("ClusterIP")) == [
        "its Service lb/web is of type ClusterIP and has no finalizer"
    ]


async def test_what_has_no_owner_is_never_one() -> None:
    assert await found(uid="") == []


async def test_a_list_that_fails_shows_none() -> None:
    api = FakeServices()
    api.script.then("list_service_metadata", ApiUnreachableError("cut off"))
    with pytest.raises(ApiUnreachableError):
        await orphans.find([shown()], api)


async def test_the_services_are_asked_for_as_they_are_now() -> None:
    class Asked(FakeServices):
        newest: tuple[bool, ...] = ()

        async def list_service_metadata(self, *, newest: bool = False) -> list[Mapping[str, Any]]:
            self.newest += (newest,)
            return await super().list_service_metadata(newest=newest)

    api = Asked()
    await orphans.find([shown()], api)
    assert api.newest == (True,)
    await orphans.find([], api)
    assert api.newest == (True,), "nobody is asked about nothing"


# ---- by the controller


def world(grace: float = GRACE, mode: Mode = Mode.REPAIR) -> World:
    made = World(drift=DriftPolicy(mode, PERIOD))
    made.orphan_grace = grace
    made.start_process()
    return made


@pytest.mark.looptime
async def test_an_orphan_is_counted_and_goes_after_the_grace_period_and_nothing_else_does() -> None:
    here = world()
    here.cloud.load_balancers[CLUSTER, OTHER_UID] = LEFT
    here.cloud.load_balancers["another-cluster", OTHER_UID] = LEFT
    async with here.working():
        await here.served()
        await settle(PERIOD)
        assert here.outcomes.orphaned == 1
        await settle(GRACE - PERIOD)
        assert (CLUSTER, OTHER_UID) in here.cloud.load_balancers
        await settle(2 * PERIOD)
        assert set(here.cloud.load_balancers) == {(CLUSTER, UID), ("another-cluster", OTHER_UID)}
        assert (here.outcomes.orphaned, here.outcomes.orphans_deleted) == (0, 1)


@pytest.mark.looptime
@pytest.mark.parametrize("mode", [Mode.REPAIR, Mode.REPORT])
async def test_without_a_grace_period_an_orphan_stays_and_is_counted(mode: Mode) -> None:
    here = world(0.0, mode)
    here.cloud.load_balancers[CLUSTER, OTHER_UID] = LEFT
    async with here.working():
        await settle(20 * PERIOD)
        assert here.outcomes.orphaned == 1
        assert (CLUSTER, OTHER_UID) in here.cloud.load_balancers


@pytest.mark.looptime
async def test_a_deletion_that_fails_is_tried_again_with_the_next_look() -> None:
    here = world(grace=1.0)
    here.cloud.load_balancers[CLUSTER, OTHER_UID] = LEFT
    here.cloud.script.then("delete", CCMError("no"))
    async with here.working():
        await settle(2 * PERIOD)
        assert (CLUSTER, OTHER_UID) in here.cloud.load_balancers
        await settle(2 * PERIOD)
        assert here.cloud.load_balancers == {}


@pytest.mark.looptime
async def test_a_service_that_is_created_while_the_cloud_is_read_keeps_its_load_balancer() -> None:
    here = world(grace=1.0)
    here.hold_watch()  # it is unread, too
    here.create(builders.finalizers())
    here.cloud.load_balancers[CLUSTER, UID] = LEFT
    async with here.working():
        await settle(20 * PERIOD)
        assert (CLUSTER, UID) in here.cloud.load_balancers
        assert here.outcomes.orphaned == 0


@pytest.mark.looptime
async def test_what_a_vanished_service_leaves_is_the_workers_and_no_orphan() -> None:
    here = world(grace=1.0)
    async with here.working():
        await here.served()
        answer = here.slow("delete")
        here.vanish()
        await settle(2 * PERIOD)
        assert here.cloud.verbs().count("delete") == 1
        assert here.outcomes.orphaned == 0
        answer.set()
        await settle(5)
        assert here.cloud.load_balancers == {}


@pytest.mark.looptime
async def test_while_the_api_server_is_away_nothing_is_an_orphan() -> None:
    here = world(grace=1.0)
    here.cloud.load_balancers[CLUSTER, OTHER_UID] = LEFT
    for _ in range(100):
        here.api.script.then("list_service_metadata", ApiUnreachableError("away"))
    async with here.working():
        await settle(20 * PERIOD)
        assert (CLUSTER, OTHER_UID) in here.cloud.load_balancers
