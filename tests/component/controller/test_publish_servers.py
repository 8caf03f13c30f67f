"""What the API server makes of an ipMode: values that are not known here, and servers that do not have it."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.controller.publish import Policy
from ccm_lb.errors import ApiError, InvalidError
from ccm_lb.objects import IPMode
from ccm_lb.testing import builders
from tests.component.world import CHOSEN, ENSURED, ENSURING, KEY, OTHER_UID, World, settle

IP = "203.0.113.1"
PROXY, VIP = {"ip": IP, "ipMode": "Proxy"}, {"ip": IP, "ipMode": "VIP"}


def annotated(value: str | None) -> builders.Tweak:
    return builders.annotated(ccm_annotations.IP_MODE, value)


def messages(world: World, reason: str) -> list[str]:
    return [one.message for one in world.events.all if one.reason == reason]


# ---- values that are not known here


async def test_an_unknown_mode_that_the_api_server_takes_passes_through(world: World) -> None:
    world.api.ip_modes |= {"Router"}
    world.create(annotated("Router"))
    await world.reconcile()
    assert world.ingress == [{"ip": IP, "ipMode": "Router"}]
    assert len(world.api.dry_runs) == 1
    assert "IPModeRefused" not in world.events.reasons()


async def test_an_unknown_mode_that_the_api_server_refuses_is_warned_of_and_the_old_one_stays(world: World) -> None:
    await world.reconciled()
    world.edit(annotated("VIP"))
    await world.reconcile()
    world.forget_history()
    world.edit(annotated("proxy"), builders.port(81))
    await world.reconcile()
    assert world.ingress == [VIP]
    assert world.cloud.changes() == ["UPDATE"], "the rest of the change is made"
    assert messages(world, "IPModeRefused") == [
        'annotation ccm-lb.dev/ip-mode is "proxy", which the API server does not take: expected VIP or Proxy; '
        "the ipMode stays what it was, or what it is by default"
    ]
    assert [patch for patch in world.api.patches if "status" in patch] == []


async def test_an_unknown_mode_of_a_new_service_is_warned_of_and_the_default_published(world: World) -> None:
    world.create(annotated("Magic"))
    await world.reconcile()
    assert world.ingress == [PROXY]
    assert "IPModeRefused" in world.events.reasons()
    await world.reconcile()
    assert len(world.api.dry_runs) == 1, "it is tried once"


async def test_a_known_mode_is_not_tried(world: World) -> None:
    world.create(annotated("Proxy"))
    await world.reconcile()
    assert world.api.dry_runs == []


async def test_an_api_server_that_is_in_trouble_refuses_nothing(world: World) -> None:
    world.create(annotated("Router"))
    world.api.script.then("patch_service_status", None, ApiError("etcd is slow", status=500))
    assert "etcd is slow" in await world.failed()
    assert "IPModeRefused" not in world.events.reasons()
    world.api.script.then("patch_service_status", InvalidError("metadata.name: Invalid value", status=422))
    assert "metadata.name" in await world.failed()


async def test_a_service_that_vanishes_while_its_mode_is_tried_is_no_failure(world: World) -> None:
    world.create(annotated("Router"))
    real = world.api.patch_service_status

    async def vanish_first(key: Any, patch: Any, *, dry_run: bool = False) -> Any:
        if dry_run:
            world.vanish()
        return await real(key, patch, dry_run=dry_run)

    world.api.patch_service_status = vanish_first  # type: ignore[method-assign]
    world.start_process()
    world.state.take_over()
    world.list_everything()
    await world.reconcile()
    await world.reconcile()
    assert world.cloud.load_balancers == {}
    assert "SyncLoadBalancerFailed" not in world.events.reasons()


# ---- an API server without ipMode


@pytest.mark.scenario("B77")
async def test_a_server_that_drops_the_mode_is_told_of_once_and_not_written_again(world: World) -> None:
    world.api.has_ip_mode = False
    world.create()
    await world.reconcile()
    await world.reconcile()
    assert world.ingress == [{"ip": IP}]
    assert len(world.api.patches) == 2, "the finalizer, and the status"
    [message] = messages(world, "IPModeNotStored")
    assert "does not store ipMode (Proxy for 203.0.113.1)" in message
    world.forget_history()
    world.edit(builders.port(81))
    await world.reconcile()
    assert world.api.patches == []
    assert world.events.lines() == [ENSURING, ENSURED]


@pytest.mark.scenario("B77")
async def test_a_server_that_drops_the_mode_is_no_news_after_a_restart_once_it_is_known(world: World) -> None:
    world.api.has_ip_mode = False
    await world.reconciled()
    world.create(builders.named("other"), builders.uid(OTHER_UID))
    await world.reconciler.reconcile(KEY._replace(name="other"))
    await world.restarted()
    assert len(world.api.patches) <= 1, "by the first write it is found out"
    world.forget_history()
    other = world.api.object(KEY._replace(name="other"))
    assert other is not None
    world.controller.on_event("services", None, other)
    await world.reconciler.reconcile(KEY._replace(name="other"))
    assert (world.api.patches, world.events.all) == ([], [])


@pytest.mark.scenario("B77")
async def test_a_server_that_fills_in_vip_makes_no_difference(world: World) -> None:
    world.cloud.ip_mode = IPMode.VIP
    await world.reconciled()
    await world.restarted()
    assert (world.ingress, world.api.patches) == ([VIP], [])


async def test_on_such_a_server_vip_is_nothing_to_tell(world: World) -> None:
    world.api.has_ip_mode = False
    world.create(annotated("VIP"))
    await world.reconcile()
    assert "IPModeNotStored" not in world.events.reasons()


@pytest.mark.parametrize(
    ("policy", "tweak"),
    [
        pytest.param(Policy(hostname_suffix="lb.example"), {}, id="suffix"),
        pytest.param(Policy(), builders.annotated(ccm_annotations.HOSTNAME, "web.lb.lb.example"), id="annotation"),
    ],
)
async def test_on_such_a_server_a_host_name_can_stand_in_from_the_first_write_on(
    policy: Policy, tweak: builders.Tweak
) -> None:
    world = World.reconciling(policy)
    world.api.has_ip_mode = False
    world.create(tweak)
    await world.reconcile()
    written = [patch["status"]["loadBalancer"]["ingress"] for patch in world.api.patches if "status" in patch]
    assert written == [[{"hostname": "web.lb.lb.example"}]]
    [message] = messages(world, "IPModeNotStored")
    assert "web.lb.lb.example is published instead" in message
    await world.reconcile()
    await world.restarted()
    assert (world.api.patches, world.events.all) == ([], [])


@pytest.mark.parametrize("suffix", ["", "lb.example"])
async def test_a_server_that_has_ip_mode_gets_the_address_whatever_the_host_name(suffix: str) -> None:
    world = World.reconciling(Policy(hostname_suffix=suffix))
    world.create()
    await world.reconcile()
    assert world.ingress == [PROXY]
    assert world.events.lines() == [ENSURING, ENSURED, CHOSEN]


@pytest.mark.parametrize("suffix", ["", "lb.example"])
async def test_an_upgrade_of_the_cluster_is_noticed_and_the_mode_written(suffix: str) -> None:
    world = World.reconciling(Policy(hostname_suffix=suffix))
    world.api.has_ip_mode = False
    await world.reconciled()
    assert await world.reconciler.recheck() == ()
    world.api.has_ip_mode = True
    assert await world.reconciler.recheck() == (KEY,)
    await world.reconcile()
    assert world.ingress == [PROXY]
    world.forget_history()
    assert await world.reconciler.recheck() == ()
    assert world.api.dry_runs[-1:] == world.api.dry_runs[1:2], "nothing is asked any more"


async def test_nothing_is_asked_of_a_server_that_never_dropped_anything(world: World) -> None:
    await world.reconciled()
    await world.reconciler.recheck()
    assert world.api.dry_runs == []


async def test_a_service_that_is_gone_is_not_asked_for(world: World) -> None:
    world.api.has_ip_mode = False
    await world.reconciled()
    world.vanish()
    await world.reconcile()
    assert await world.reconciler.recheck() == ()
    assert world.api.dry_runs == []


@pytest.mark.looptime
async def test_the_controller_looks_for_an_upgrade_by_itself() -> None:
    world = World()
    world.api.has_ip_mode = False
    async with world.working():
        await world.served()
        world.api.has_ip_mode = True
        await world.controller.recheck()
        await settle()
        assert world.ingress == [PROXY]


@pytest.mark.looptime
async def test_a_replica_that_does_not_work_asks_nothing() -> None:
    world = World()
    world.api.has_ip_mode = False
    async with world.working():
        await world.served()
    await world.controller.recheck()
    assert world.api.dry_runs == []
