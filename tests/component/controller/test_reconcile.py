"""Making a load balancer: what is called, written and said, and in which order."""

from __future__ import annotations

import logging

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.errors import ApiError, CCMError, NotLeaderError, RetryAfterError, TerminalError
from ccm_lb.objects import CLEANUP_FINALIZER
from ccm_lb.testing import builders
from tests.component.world import CHOSEN, CLUSTER, ENSURED, ENSURING, KEY, NO_NODES, OTHER_UID, UID, World

# ---- ensure


async def test_a_new_service_is_told_ensured_and_published(world: World) -> None:
    world.create()
    await world.reconcile()
    assert world.events.lines() == [ENSURING, ENSURED, CHOSEN]
    assert world.ingress == [{"ip": "203.0.113.1", "ipMode": "Proxy"}]
    assert world.targets == ("n1", "n2", "n3")


async def test_ensuring_is_said_before_the_finalizer_is_put_on(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", ApiError("internal", status=500))
    await world.failed()
    assert world.events.reasons() == ["EnsuringLoadBalancer", "SyncLoadBalancerFailed"]


async def test_the_finalizer_is_on_before_the_first_cloud_call(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", CCMError("no capacity"))
    await world.failed()
    assert world.finalizers == [CLEANUP_FINALIZER]
    assert world.cloud.load_balancers == {}


async def test_without_its_finalizer_nothing_is_asked_of_the_cloud(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", ApiError("internal", status=500))
    await world.failed()
    assert world.cloud.calls == []


async def test_ensured_is_said_before_the_status_is_written(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", None, ApiError("internal", status=500))
    await world.failed()
    assert world.events.lines() == [
        ENSURING,
        ENSURED,
        "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to update load balancer status: internal",
    ]


async def test_every_patch_names_the_uid(world: World) -> None:
    world.create()
    await world.reconcile()
    world.delete()
    await world.reconcile()
    assert [patch["metadata"]["uid"] for patch in world.api.patches] == [UID] * 3


async def test_without_nodes_the_load_balancer_is_made_and_the_user_warned() -> None:
    world = World()
    world.create()
    await world.reconcile()
    assert world.events.lines() == [ENSURING, NO_NODES, ENSURED, CHOSEN]
    assert world.targets == ()
    assert world.ingress


async def test_a_second_reconcile_does_nothing(world: World) -> None:
    await world.reconciled()
    await world.reconcile()
    assert (world.cloud.calls, world.api.patches, world.events.all) == ([], [], [])


@pytest.mark.parametrize(
    "standing",
    [
        pytest.param({"ip": "203.0.113.1", "ipMode": "Proxy"}, id="the-same"),
        pytest.param({"ip": "203.0.113.1", "ipMode": "Proxy", "ports": None}, id="without-ports"),
    ],
)
async def test_a_status_that_stands_already_is_not_written_again(world: World, standing: builders.Tweak) -> None:
    world.create(builders.finalizers(), builders.published(standing))
    await world.reconcile()
    assert world.api.patches == []


async def test_an_absent_ip_mode_equals_vip(world: World) -> None:
    await world.reconciled()
    world.create(builders.named("classic"), builders.uid(OTHER_UID), builders.finalizers())
    key = KEY._replace(name="classic")
    # As an API server without the feature stores it.
    service = builders.service(
        builders.named("classic"),
        builders.uid(OTHER_UID),
        builders.finalizers(),
        builders.version(900),
        builders.annotated(ccm_annotations.IP_MODE, "VIP"),
        builders.published({"ip": "203.0.113.2"}),
    )
    world.state.see(service)
    world.forget_history()
    await world.reconciler.reconcile(key)
    assert world.cloud.verbs() == ["ensure"]
    assert world.api.patches == []


async def test_a_changed_port_is_ensured_and_the_unchanged_status_not_written(world: World) -> None:
    await world.reconciled()
    world.edit(builders.port(81))
    await world.reconcile()
    assert world.events.lines() == [ENSURING, ENSURED]
    assert world.cloud.load_balancers[CLUSTER, UID].listeners == (("TCP", 81, 30080),)
    assert world.api.patches == []


@pytest.mark.parametrize("verb", ["label", "foreign-status", "own-echo"])
async def test_a_change_that_no_load_balancer_depends_on_needs_nothing(world: World, verb: str) -> None:
    await world.reconciled()
    tweaks: dict[str, builders.Tweak] = {
        "label": builders.labelled("team", "b"),
        "foreign-status": {"status": {"conditions": [{"type": "Other", "status": "True"}]}},
        "own-echo": {},
    }
    world.edit(tweaks[verb])
    await world.reconcile()
    assert world.cloud.calls == []


@pytest.mark.scenario("B85")
async def test_a_restored_service_is_treated_as_new(world: World) -> None:
    world.create(builders.uid(OTHER_UID), builders.named("original"))
    await world.reconciler.reconcile(KEY._replace(name="original"))
    before = dict(world.cloud.load_balancers)
    world.create(builders.finalizers(), builders.published({"ip": "203.0.113.66"}))
    await world.reconcile()
    assert world.cloud.changes() == ["CREATE", "CREATE"]
    assert world.cloud.load_balancers.items() >= before.items()
    assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]


async def test_a_status_that_somebody_wiped_is_restored(world: World) -> None:
    await world.reconciled()
    before = "203.0.113.1"
    world.edit(builders.published())
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == [before]
    assert world.cloud.changes() == []


async def test_a_status_that_somebody_changed_is_restored(world: World) -> None:
    await world.reconciled()
    world.edit(builders.published({"ip": "198.51.100.99", "ipMode": "VIP"}))
    await world.reconcile()
    assert world.ingress == [{"ip": "203.0.113.1", "ipMode": "Proxy"}]


async def test_a_finalizer_that_somebody_stripped_is_put_back(world: World) -> None:
    await world.reconciled()
    world.edit({"metadata": {"finalizers": None}})
    await world.reconcile()
    assert world.finalizers == [CLEANUP_FINALIZER]
    assert world.cloud.changes() == []


# ---- after a restart


async def restarted(world: World) -> None:
    await world.reconciled()
    world.start_process()
    world.state.take_over()
    world.list_everything()


@pytest.mark.scenario("B07")
async def test_after_a_restart_what_is_right_is_verified_in_silence(world: World) -> None:
    await restarted(world)
    await world.reconcile()
    assert world.cloud.verbs() == ["ensure"]
    assert (world.cloud.changes(), world.api.patches, world.events.all) == ([], [], [])


@pytest.mark.scenario("B29")
async def test_after_a_restart_what_is_gone_is_made_again_and_said(world: World) -> None:
    await restarted(world)
    world.cloud.remove((CLUSTER, UID))
    world.forget_history()
    await world.reconcile()
    assert world.cloud.changes() == ["CREATE"]
    assert ENSURED in world.events.lines()
    assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]


async def test_after_a_restart_what_the_cloud_is_changed_for_is_told_as_usual(world: World) -> None:
    await restarted(world)
    world.edit(builders.port(81))
    await world.reconcile()
    assert world.cloud.changes()[-1] == "UPDATE"
    assert world.events.lines()[:2] == [ENSURING, ENSURED]


async def test_after_a_restart_another_address_is_told_as_usual(world: World) -> None:
    await restarted(world)
    world.edit(builders.published({"ip": "198.51.100.9", "ipMode": "VIP"}))
    await world.reconcile()
    assert world.events.lines()[:2] == [ENSURING, ENSURED]


async def test_a_service_that_waits_is_told_of_once_and_not_by_each_restart(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", *[RetryAfterError("busy", 2)] * 4)
    await world.failed(RetryAfterError)
    for _ in range(3):
        world.start_process()
        world.state.take_over()
        world.list_everything()
        world.forget_history()
        await world.failed(RetryAfterError)
        assert world.events.all == []
    await world.reconcile()
    assert world.events.lines() == [ENSURING, ENSURED, CHOSEN]


async def test_without_nodes_a_restart_warns_of_nothing_new(world: World) -> None:
    await world.reconciled()
    for name in ("n1", "n2", "n3"):
        world.api.delete(builders.node_json(name))
    await world.reconcile()
    await world.restarted()
    assert world.events.all == []


# ---- what is counted


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(None, "success", id="success"),
        pytest.param(CCMError("no"), "error", id="error"),
        pytest.param(RetryAfterError("no", 1), "retry_after", id="retry-after"),
        pytest.param(TerminalError("no"), "terminal", id="terminal"),
        pytest.param(NotLeaderError("no"), "error", id="not-leader"),
    ],
)
async def test_each_reconcile_is_counted_with_its_outcome(world: World, error: Exception | None, outcome: str) -> None:
    world.create()
    world.cloud.script.then("ensure", error)
    if error is None:
        await world.reconcile()
    else:
        await world.failed(type(error))
    assert world.outcomes.all == [("ensure", outcome)]


async def test_a_reconcile_with_nothing_to_do_is_not_counted(world: World) -> None:
    await world.reconciled()
    await world.reconcile()
    assert world.outcomes.all == []


async def test_the_log_tells_what_changed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ccm_lb")
    world.create()
    await world.reconcile()
    world.delete()
    await world.reconcile()
    assert [record.getMessage() for record in caplog.records] == [
        "published the load balancer",
        "deleted the load balancer",
    ]


async def test_the_age_at_the_first_address_is_counted_once(world: World) -> None:
    world.create({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}})
    await world.reconcile()
    world.edit(builders.published())
    await world.reconcile()
    [age] = world.outcomes.ages
    assert age >= 0


async def test_a_service_without_a_creation_time_has_no_age(world: World) -> None:
    await world.reconciled()
    assert world.outcomes.ages == []
