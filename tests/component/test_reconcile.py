"""One reconcile: what is called, written and said, in which order, and what is left when something fails."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.base import BackendContext
from ccm_lb.errors import (
    ApiError,
    CCMError,
    ConflictError,
    ImplementedElsewhereError,
    InvalidError,
    NotLeaderError,
    RetryAfterError,
    TerminalError,
)
from ccm_lb.objects import CLEANUP_FINALIZER, EXCLUDE_LABEL, LoadBalancerIngress, LoadBalancerStatus, Service
from ccm_lb.predicates import Scope
from ccm_lb.reconcile import Dependencies, Reconciler
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import FakeClock
from ccm_lb.testing.memory import MemoryBackend, MemoryConfig
from ccm_lb.testing.script import Late, Lost
from ccm_lb.testing.transports import NoTransport
from tests.component.world import (
    CLUSTER,
    DELETED,
    DELETING,
    ENSURED,
    ENSURING,
    KEY,
    NO_NODES,
    OTHER_UID,
    UID,
    UPDATED,
    World,
)

OURS = Scope(classes=frozenset({"example.com/ours"}))


@pytest.fixture
def world() -> World:
    world = World()
    world.add_nodes()
    world.state.take_over()
    return world


async def reconcile(world: World) -> None:
    await world.reconciler.reconcile(KEY)


async def served(world: World) -> None:
    world.create()
    await reconcile(world)
    assert world.ingress
    world.forget_history()


async def failed(world: World, error: type[Exception] = CCMError) -> str:
    with pytest.raises(error) as caught:
        await reconcile(world)
    return str(caught.value)


# ---- ensure


async def test_a_new_service_is_told_ensured_and_published(world: World) -> None:
    world.create()
    await reconcile(world)
    assert world.events.lines() == [ENSURING, ENSURED]
    assert world.ingress == [{"ip": "203.0.113.1", "ipMode": "Proxy"}]
    assert world.targets == ("n1", "n2", "n3")


async def test_ensuring_is_said_before_the_finalizer_is_put_on(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", ApiError("internal", status=500))
    await failed(world)
    assert world.events.reasons() == ["EnsuringLoadBalancer", "SyncLoadBalancerFailed"]


async def test_the_finalizer_is_on_before_the_first_cloud_call(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", CCMError("no capacity"))
    await failed(world)
    assert world.finalizers == [CLEANUP_FINALIZER]
    assert world.cloud.load_balancers == {}


async def test_without_its_finalizer_nothing_is_asked_of_the_cloud(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", ApiError("internal", status=500))
    await failed(world)
    assert world.cloud.calls == []


async def test_ensured_is_said_before_the_status_is_written(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", None, ApiError("internal", status=500))
    await failed(world)
    assert world.events.lines() == [
        ENSURING,
        ENSURED,
        "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to update load balancer status: internal",
    ]


async def test_every_patch_names_the_uid(world: World) -> None:
    world.create()
    await reconcile(world)
    world.delete()
    await reconcile(world)
    assert [patch["metadata"]["uid"] for patch in world.api.patches] == [UID] * 3


async def test_without_nodes_the_load_balancer_is_made_and_the_user_warned() -> None:
    world = World()
    world.create()
    await reconcile(world)
    assert world.events.lines() == [ENSURING, NO_NODES, ENSURED]
    assert world.targets == ()
    assert world.ingress


async def test_a_second_reconcile_does_nothing(world: World) -> None:
    await served(world)
    await reconcile(world)
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
    await reconcile(world)
    assert world.api.patches == []


async def test_an_absent_ip_mode_equals_vip(world: World) -> None:
    await served(world)
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
    await served(world)
    world.edit(builders.port(81))
    await reconcile(world)
    assert world.events.lines() == [ENSURING, ENSURED]
    assert world.cloud.load_balancers[CLUSTER, UID].listeners == (("TCP", 81, 30080),)
    assert world.api.patches == []


@pytest.mark.parametrize("verb", ["label", "foreign-status", "own-echo"])
async def test_a_change_that_no_load_balancer_depends_on_needs_nothing(world: World, verb: str) -> None:
    await served(world)
    tweaks: dict[str, builders.Tweak] = {
        "label": builders.labelled("team", "b"),
        "foreign-status": {"status": {"conditions": [{"type": "Other", "status": "True"}]}},
        "own-echo": {},
    }
    world.edit(tweaks[verb])
    await reconcile(world)
    assert world.cloud.calls == []


@pytest.mark.scenario("B85")
async def test_a_restored_service_is_treated_as_new(world: World) -> None:
    world.create(builders.uid(OTHER_UID), builders.named("original"))
    await world.reconciler.reconcile(KEY._replace(name="original"))
    before = dict(world.cloud.load_balancers)
    world.create(builders.finalizers(), builders.published({"ip": "203.0.113.66"}))
    await reconcile(world)
    assert world.cloud.changes() == ["CREATE", "CREATE"]
    assert world.cloud.load_balancers.items() >= before.items()
    assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]


async def test_a_status_that_somebody_wiped_is_restored(world: World) -> None:
    await served(world)
    before = "203.0.113.1"
    world.edit(builders.published())
    await reconcile(world)
    assert [one["ip"] for one in world.ingress] == [before]
    assert world.cloud.changes() == []


async def test_a_status_that_somebody_changed_is_restored(world: World) -> None:
    await served(world)
    world.edit(builders.published({"ip": "198.51.100.99", "ipMode": "VIP"}))
    await reconcile(world)
    assert world.ingress == [{"ip": "203.0.113.1", "ipMode": "Proxy"}]


async def test_a_finalizer_that_somebody_stripped_is_put_back(world: World) -> None:
    await served(world)
    world.edit({"metadata": {"finalizers": None}})
    await reconcile(world)
    assert world.finalizers == [CLEANUP_FINALIZER]
    assert world.cloud.changes() == []


@pytest.mark.scenario("B77")
async def test_a_hostname_is_published_without_ip_mode(world: World) -> None:
    ingress = LoadBalancerIngress(hostname="lb.example.com", ip_mode="Proxy")
    answering(world, LoadBalancerStatus(ingress=(ingress,)))
    world.create()
    await reconcile(world)
    assert world.ingress == [{"hostname": "lb.example.com"}]


async def test_an_answer_that_is_no_status_is_upstreams_error(world: World) -> None:
    answering(world, None)
    world.create()
    await failed(world)
    assert world.events.lines()[-1] == (
        "Warning SyncLoadBalancerFailed Error syncing load balancer: "
        "service status returned by EnsureLoadBalancer is nil"
    )
    assert world.ingress == []


@pytest.mark.parametrize(
    ("ingress", "said"),
    [
        pytest.param(LoadBalancerIngress(ip="not an address"), "not an address", id="not-an-ip"),
        pytest.param(LoadBalancerIngress(), "neither ip nor hostname", id="empty"),
    ],
)
async def test_an_unusable_address_is_not_published(world: World, ingress: LoadBalancerIngress, said: str) -> None:
    answering(world, LoadBalancerStatus(ingress=(ingress,)))
    world.create()
    assert said in await failed(world)
    assert world.ingress == []


def answering(world: World, answer: LoadBalancerStatus | None) -> None:
    """From now on `ensure` answers this, whatever the cloud did."""

    class Answering(MemoryBackend):
        async def ensure_load_balancer(self, service: Service, nodes: object) -> LoadBalancerStatus:
            return answer  # type: ignore[return-value]

    context = BackendContext(CLUSTER, MemoryConfig(cloud=world.cloud), NoTransport(), FakeClock(), world.events)
    deps = Dependencies(world.api, Answering(context), world.events, world.fence, world.outcomes, "ccm-lb")
    world.reconciler = Reconciler(deps, world.state)


# ---- ensure, and something fails


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(CCMError("quota exceeded"), "quota exceeded", id="words"),
        pytest.param(ValueError(), "ValueError", id="no-words"),
    ],
)
async def test_a_failed_ensure_is_said_with_upstreams_words(world: World, error: Exception, said: str) -> None:
    world.create()
    world.cloud.script.then("ensure", error)
    await failed(world)
    assert world.events.lines()[-1] == (
        f"Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: {said}"
    )


async def test_a_failure_to_put_the_finalizer_on_is_said_with_upstreams_words(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", ApiError("etcd is slow", status=500))
    assert await failed(world) == "failed to add load balancer cleanup finalizer: etcd is slow"


@pytest.mark.scenario("B06")
async def test_a_failed_ensure_leaves_what_served(world: World) -> None:
    await served(world)
    before = dict(world.cloud.load_balancers)
    world.edit(builders.port(81))
    world.cloud.script.then("ensure", CCMError("firewall unreadable"))
    await failed(world)
    assert world.cloud.load_balancers == before
    assert world.ingress
    assert world.cloud.changes() == []


@pytest.mark.scenario("B18")
async def test_a_create_whose_answer_was_lost_is_found_again(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", *[Lost(TimeoutError("no answer"))] * 3)
    for _ in range(3):
        await failed(world)
    await reconcile(world)
    assert world.cloud.changes() == ["CREATE"]
    assert world.ingress


async def test_a_cloud_at_work_is_waited_for_without_a_warning(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", RetryAfterError("it is being built", 15))
    with pytest.raises(RetryAfterError) as caught:
        await reconcile(world)
    assert caught.value.delay == 15
    assert world.events.lines() == [
        ENSURING,
        "Normal WaitingForLoadBalancer Waiting for the load balancer: it is being built",
    ]


async def test_a_terminal_error_is_handed_on_as_such(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", TerminalError("SCTP is not available"))
    await failed(world, TerminalError)
    assert world.events.reasons()[-1] == "SyncLoadBalancerFailed"


@pytest.mark.scenario("B06")
async def test_a_terminal_error_leaves_what_served(world: World) -> None:
    await served(world)
    world.edit(builders.annotated(ccm_annotations.IP_MODE, "proxy"))
    await failed(world, TerminalError)
    assert world.ingress
    assert world.cloud.changes() == []


async def test_a_service_that_is_implemented_elsewhere_counts_as_synced(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", ImplementedElsewhereError())
    await reconcile(world)
    assert world.events.lines() == [ENSURING]
    assert (world.ingress, world.finalizers) == ([], [CLEANUP_FINALIZER])
    world.forget_history()
    await reconcile(world)
    assert world.cloud.calls == []


async def test_a_cancelled_reconcile_says_nothing(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", asyncio.Event())
    task = asyncio.create_task(reconcile(world))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.events.lines() == [ENSURING]


# ---- the lease


async def test_without_the_lease_nothing_is_written(world: World) -> None:
    world.create()
    world.fence.held = False
    await failed(world, NotLeaderError)
    assert (world.api.patches, world.cloud.calls) == ([], [])
    assert world.events.reasons() == ["EnsuringLoadBalancer"]


@pytest.mark.parametrize(
    "lost_in", [pytest.param("ensure", id="in-the-cloud-call"), pytest.param("patch_service_status", id="in-a-patch")]
)
async def test_a_lease_lost_on_the_way_stops_what_comes_after(world: World, lost_in: str) -> None:
    world.create()
    answer = asyncio.Event()
    (world.cloud if lost_in == "ensure" else world.api).script.then(lost_in, Late(answer))
    task = asyncio.create_task(reconcile(world))
    await asyncio.sleep(0.01)
    world.fence.held = False
    answer.set()
    with pytest.raises(NotLeaderError):
        await task
    assert world.ingress == []
    assert "SyncLoadBalancerFailed" not in world.events.reasons()


async def test_a_vanished_service_is_left_alone_without_the_lease(world: World) -> None:
    await served(world)
    world.vanish()
    world.fence.held = False
    await failed(world, NotLeaderError)
    assert world.cloud.changes() == []


# ---- nodes


@pytest.mark.parametrize("change", ["added", "removed"])
async def test_a_node_change_alone_is_an_update(world: World, change: str) -> None:
    await served(world)
    world.api.create(builders.node_json("n4")) if change == "added" else world.api.delete(builders.node_json("n3"))
    await reconcile(world)
    assert world.cloud.verbs() == ["update"]
    assert world.events.lines() == [UPDATED]
    assert world.targets == (("n1", "n2", "n3", "n4") if change == "added" else ("n1", "n2"))
    assert world.api.patches == []


@pytest.mark.scenario("B60")
async def test_the_last_node_gone_is_said_and_the_status_stays(world: World) -> None:
    await served(world)
    for name in ("n1", "n2", "n3"):
        world.api.edit(builders.node_json(name), builders.labelled(EXCLUDE_LABEL, "true"))
    await reconcile(world)
    assert world.events.lines() == [NO_NODES]
    assert world.targets == ()
    assert world.ingress


@pytest.mark.scenario("B61")
async def test_a_cordoned_node_stays(world: World) -> None:
    await served(world)
    world.api.edit(builders.node_json("n1"), {"spec": {"unschedulable": True}})
    await reconcile(world)
    assert world.cloud.calls == []


async def test_a_changed_port_and_node_are_one_ensure(world: World) -> None:
    await served(world)
    world.api.create(builders.node_json("n4"))
    world.edit(builders.port(81))
    await reconcile(world)
    assert world.cloud.verbs() == ["ensure"]
    assert world.targets == ("n1", "n2", "n3", "n4")


async def test_a_failed_update_is_said_with_the_nodes_and_followed_by_a_full_ensure(world: World) -> None:
    await served(world)
    world.api.create(builders.node_json("n4"))
    world.cloud.script.then("update", CCMError("conflict"))
    await failed(world)
    assert world.events.lines() == [
        "Warning UpdateLoadBalancerFailed Error updating load balancer with new hosts [n1 n2 n3 n4] "
        "[node names limited, total number of nodes: 4], error: conflict"
    ]
    await reconcile(world)
    assert world.cloud.verbs() == ["update", "ensure"]
    assert world.targets == ("n1", "n2", "n3", "n4")


@pytest.mark.scenario("B29")
async def test_a_load_balancer_deleted_in_the_cloud_is_made_again_after_a_failed_update(world: World) -> None:
    await served(world)
    world.cloud.remove((CLUSTER, UID))
    world.api.create(builders.node_json("n4"))
    world.forget_history()
    await failed(world)
    await reconcile(world)
    assert world.cloud.changes() == ["CREATE"]
    assert world.events.reasons()[0] == "UpdateLoadBalancerFailed"
    assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]
    assert world.targets == ("n1", "n2", "n3", "n4")


@pytest.mark.scenario("B11")
async def test_a_wiped_status_does_not_hide_the_load_balancer_from_a_node_update(world: World) -> None:
    await served(world)
    world.edit(builders.published())
    world.api.create(builders.node_json("n4"))
    await reconcile(world)
    assert world.cloud.changes() == ["UPDATE"]
    assert world.targets == ("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("error", "raised"),
    [(RetryAfterError("busy", 7), RetryAfterError), (NotLeaderError("lost"), NotLeaderError)],
    ids=["retry-after", "not-leader"],
)
async def test_an_update_that_was_put_off_stays_an_update(
    world: World, error: Exception, raised: type[Exception]
) -> None:
    await served(world)
    world.api.create(builders.node_json("n4"))
    world.cloud.script.then("update", error)
    await failed(world, raised)
    await reconcile(world)
    assert world.cloud.verbs() == ["update", "update"]


async def test_an_update_that_is_implemented_elsewhere_counts_as_done(world: World) -> None:
    await served(world)
    world.api.create(builders.node_json("n4"))
    world.cloud.script.then("update", ImplementedElsewhereError())
    await reconcile(world)
    await reconcile(world)
    assert world.cloud.verbs() == ["update"]
    assert world.events.all == []


async def test_a_terminal_update_is_handed_on_as_such(world: World) -> None:
    await served(world)
    world.api.create(builders.node_json("n4"))
    world.cloud.script.then("update", TerminalError("too many targets"))
    await failed(world, TerminalError)
    assert world.events.reasons() == ["UpdateLoadBalancerFailed"]


async def test_the_backend_gets_the_nodes_sorted_by_name_and_with_their_raw_object() -> None:
    world = World()
    world.add_nodes("n3", "n1")
    world.api.create(builders.node_json("n2", builders.labelled("zone", "b")))
    world.create()
    await reconcile(world)
    assert world.cloud.calls[-1].nodes == ("n1", "n2", "n3")
    assert [node.raw["metadata"].get("labels") for node in world.state.eligible_nodes()] == [None, {"zone": "b"}, None]


# ---- clean-up


async def test_a_deleted_service_loses_load_balancer_status_and_finalizer_in_one_patch(world: World) -> None:
    await served(world)
    world.delete()
    await reconcile(world)
    assert world.gone
    assert world.cloud.verbs() == ["get", "delete"]
    assert world.cloud.load_balancers == {}
    assert world.events.lines() == [DELETING, DELETED]
    assert len(world.api.patches) == 1


@pytest.mark.parametrize("to", ["ClusterIP", "NodePort", "ExternalName"])
@pytest.mark.scenario("B35")
async def test_a_changed_type_is_cleaned_up_and_the_service_stays(world: World, to: str) -> None:
    await served(world)
    world.edit(builders.of_type(to))
    await reconcile(world)
    assert (world.finalizers, world.ingress) == ([], [])
    assert world.cloud.changes() == ["DELETE"]
    assert world.events.lines() == [DELETING, DELETED]


@pytest.mark.scenario("B35")
async def test_a_type_changed_while_no_controller_ran_is_cleaned_up(world: World) -> None:
    await served(world)
    world.edit(builders.of_type("ClusterIP"))
    world.start_process()
    world.state.take_over()
    world.list_everything()
    await reconcile(world)
    assert world.finalizers == []
    assert world.cloud.load_balancers == {}


async def test_where_no_load_balancer_was_it_is_deleted_all_the_same_and_only_deleted_is_said(world: World) -> None:
    world.create(builders.finalizers(), builders.deleting())
    await reconcile(world)
    assert world.cloud.verbs() == ["get", "delete"]
    assert world.events.lines() == [DELETED]
    assert world.gone


async def test_a_look_up_that_fails_keeps_the_finalizer(world: World) -> None:
    await served(world)
    world.delete()
    world.cloud.script.then("get", CCMError("503"))
    await failed(world)
    assert world.events.lines() == [
        "Warning SyncLoadBalancerFailed Error syncing load balancer: "
        "failed to check if load balancer exists before cleanup: 503"
    ]
    assert world.finalizers == [CLEANUP_FINALIZER]
    assert world.cloud.changes() == []


@pytest.mark.scenario("B43")
async def test_a_failed_delete_keeps_the_finalizer_and_is_repeated(world: World) -> None:
    await served(world)
    world.delete()
    world.cloud.script.then("delete", CCMError("409"), CCMError("409"))
    await failed(world)
    assert world.events.lines() == [
        DELETING,
        "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to delete load balancer: 409",
    ]
    assert world.finalizers == [CLEANUP_FINALIZER]
    await failed(world)
    await reconcile(world)
    assert world.gone
    assert world.cloud.load_balancers == {}


async def test_a_failure_to_take_the_finalizer_off_is_said_with_upstreams_words(world: World) -> None:
    await served(world)
    world.delete()
    world.api.script.then("patch_service_status", ApiError("internal", status=500))
    assert await failed(world) == "failed to remove load balancer cleanup finalizer: internal"
    assert "DeletedLoadBalancer" not in world.events.reasons()
    await reconcile(world)
    assert world.gone


async def test_a_lost_answer_to_the_release_ends_well(world: World) -> None:
    await served(world)
    world.delete()
    world.api.script.then("patch_service_status", Lost(ApiError("cut", status=500)))
    await failed(world)
    await reconcile(world)
    assert world.gone
    assert world.cloud.changes() == ["DELETE"]


@pytest.mark.parametrize("verb", ["get", "delete"])
async def test_a_delete_that_was_put_off_is_waited_for(world: World, verb: str) -> None:
    await served(world)
    world.delete()
    world.cloud.script.then(verb, RetryAfterError("still draining", 20))
    with pytest.raises(RetryAfterError) as caught:
        await reconcile(world)
    assert caught.value.delay == 20
    assert world.events.reasons()[-1] == "WaitingForLoadBalancer"
    assert world.finalizers == [CLEANUP_FINALIZER]


async def test_a_terminal_delete_is_handed_on_as_such(world: World) -> None:
    await served(world)
    world.delete()
    world.cloud.script.then("delete", TerminalError("it is protected"))
    await failed(world, TerminalError)
    assert world.finalizers == [CLEANUP_FINALIZER]


async def test_a_delete_that_is_implemented_elsewhere_lets_the_service_go(world: World) -> None:
    await served(world)
    world.delete()
    world.cloud.script.then("delete", ImplementedElsewhereError())
    await reconcile(world)
    assert world.gone


async def test_a_service_under_deletion_is_never_ensured(world: World) -> None:
    world.create(builders.finalizers("example.com/hold"), builders.deleting())
    await reconcile(world)
    assert (world.cloud.calls, world.api.patches, world.events.all) == ([], [], [])


async def test_a_service_deleted_before_the_finalizer_is_put_on_gets_no_load_balancer(world: World) -> None:
    world.create(builders.finalizers("example.com/hold"))
    world.hold_watch()
    world.delete()
    await failed(world)
    assert world.cloud.calls == []
    world.release_watch()
    await reconcile(world)
    assert (world.cloud.calls, world.finalizers) == ([], ["example.com/hold"])


async def test_a_service_gone_before_the_finalizer_is_put_on_gets_no_load_balancer(world: World) -> None:
    world.create()
    world.hold_watch()
    world.delete()
    await reconcile(world)
    assert world.cloud.calls == []


async def test_a_service_gone_while_it_is_ensured_is_removed_at_once(world: World) -> None:
    world.create()
    answer = asyncio.Event()
    world.cloud.script.then("ensure", Late(answer))
    task = asyncio.create_task(reconcile(world))
    await asyncio.sleep(0.01)
    world.hold_watch()
    world.vanish()
    answer.set()
    await task
    assert world.cloud.changes() == ["CREATE", "DELETE"]


# ---- whose finalizer


def foreign(world: World, *, manager: str) -> None:
    """A Service of another controller's class, with the finalizer that all controllers use."""
    world.api.create(
        builders.service_json(builders.of_class("example.com/other"), builders.finalizers()), manager=manager
    )


@pytest.mark.scenario("B84")
@pytest.mark.parametrize("phase", ["created", "port-changed", "deleted"])
async def test_a_service_of_another_controller_is_left_alone(world: World, phase: str) -> None:
    foreign(world, manager="other-ccm")
    await reconcile(world)
    if phase == "port-changed":
        world.edit(builders.port(81))
    elif phase == "deleted":
        world.delete()
    before = world.service
    await reconcile(world)
    assert world.service == before
    assert (world.events.all, world.cloud.changes(), world.api.patches) == ([], [], [])


async def test_a_finalizer_of_another_controller_is_asked_about_once(world: World) -> None:
    foreign(world, manager="other-ccm")
    await reconcile(world)
    world.forget_history()
    gets = len(world.api.gets)
    world.edit(builders.port(81))
    await reconcile(world)
    assert (world.cloud.calls, len(world.api.gets)) == ([], gets)


async def test_our_finalizer_on_a_service_of_another_class_is_taken_off(world: World) -> None:
    foreign(world, manager="ccm-lb")
    await reconcile(world)
    assert world.finalizers == []


async def test_a_class_changed_while_no_controller_ran_is_cleaned_up(world: World) -> None:
    await served(world)
    world.edit(builders.of_class("example.com/other"))
    world.start_process()
    world.state.take_over()
    world.list_everything()
    await reconcile(world)
    assert world.finalizers == []
    assert world.cloud.load_balancers == {}
    assert world.ingress == []


async def test_a_class_change_is_cleaned_up(world: World) -> None:
    await served(world)
    world.edit(builders.of_class("example.com/other"))
    await reconcile(world)
    assert world.finalizers == []
    assert world.cloud.changes() == ["DELETE"]


async def test_an_address_that_another_controller_published_is_left_in_the_status(world: World) -> None:
    await served(world)
    world.edit(builders.of_class("example.com/other"), builders.published({"ip": "198.51.100.200"}))
    await reconcile(world)
    assert [one["ip"] for one in world.ingress] == ["198.51.100.200"]


@pytest.mark.scenario("B36")
async def test_foreign_finalizers_stay_as_their_owner_left_them(world: World) -> None:
    world.create(builders.finalizers("other.example.com/hold"))
    await reconcile(world)
    assert set(world.finalizers) == {CLEANUP_FINALIZER, "other.example.com/hold"}
    world.delete()
    # Between our last look and our write another one comes and goes.
    world.hold_watch()
    world.edit(builders.finalizers(CLEANUP_FINALIZER, "late.example.com/hold"))
    await reconcile(world)
    assert world.finalizers == ["late.example.com/hold"]


# ---- the same name again


async def created_again(world: World, *tweaks: builders.Tweak) -> None:
    await served(world)
    world.hold_watch()
    world.vanish()
    world.held = []  # neither of these two events is delivered
    world.create(builders.uid(OTHER_UID), *tweaks)
    world.release_watch()


@pytest.mark.scenario("B46")
async def test_a_service_created_again_gets_its_own_and_the_old_one_is_deleted(world: World) -> None:
    await created_again(world, builders.port(81))
    await reconcile(world)
    assert world.cloud.changes() == ["DELETE", "CREATE"]
    assert world.events.lines() == [DELETING, DELETED, ENSURING, ENSURED]
    assert list(world.cloud.load_balancers) == [(CLUSTER, OTHER_UID)]
    assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]


async def test_a_failed_delete_of_the_old_one_is_said_and_repeated(world: World) -> None:
    await created_again(world)
    world.cloud.script.then("delete", CCMError("409"))
    await failed(world)
    assert world.events.lines() == [DELETING, "Warning DeleteLoadBalancerFailed Error deleting load balancer: 409"]
    await reconcile(world)
    assert list(world.cloud.load_balancers) == [(CLUSTER, OTHER_UID)]


@pytest.mark.parametrize(
    "error",
    [RetryAfterError("draining", 9), NotLeaderError("lost"), TerminalError("protected")],
    ids=lambda e: type(e).__name__,
)
async def test_what_the_backend_says_of_the_old_ones_delete_is_handed_on(world: World, error: Exception) -> None:
    await created_again(world)
    world.cloud.script.then("delete", error)
    await failed(world, type(error))


async def test_a_delete_of_the_old_one_that_is_implemented_elsewhere_is_done(world: World) -> None:
    await created_again(world)
    world.cloud.script.then("delete", ImplementedElsewhereError())
    await reconcile(world)
    assert world.ingress


async def test_the_status_never_goes_to_another_uid(world: World) -> None:
    world.create()
    answer = asyncio.Event()
    world.cloud.script.then("ensure", Late(answer))
    task = asyncio.create_task(reconcile(world))
    await asyncio.sleep(0.01)
    world.hold_watch()
    world.vanish()
    world.create(builders.uid(OTHER_UID))
    answer.set()
    await task
    assert world.ingress == []
    assert world.cloud.load_balancers == {}


async def test_a_vanished_service_is_asked_about_before_it_is_believed(world: World) -> None:
    await served(world)
    world.vanish()
    await reconcile(world)
    assert world.api.gets == [KEY]
    assert world.cloud.changes() == ["DELETE"]
    assert world.events.lines() == [DELETING, DELETED]


async def test_a_conflict_is_a_failure_like_others(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", ConflictError("changed meanwhile", status=409))
    await failed(world)
    assert world.finalizers == []


async def test_a_refused_patch_of_a_living_service_is_said(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", None, InvalidError("ipMode: Unsupported value", status=422))
    assert await failed(world) == "failed to update load balancer status: ipMode: Unsupported value"


# ---- after a restart


async def restarted(world: World) -> None:
    await served(world)
    world.start_process()
    world.state.take_over()
    world.list_everything()


@pytest.mark.scenario("B07")
async def test_after_a_restart_what_is_right_is_verified_in_silence(world: World) -> None:
    await restarted(world)
    await reconcile(world)
    assert world.cloud.verbs() == ["ensure"]
    assert (world.cloud.changes(), world.api.patches, world.events.all) == ([], [], [])


@pytest.mark.scenario("B29")
async def test_after_a_restart_what_is_gone_is_made_again_and_said(world: World) -> None:
    await restarted(world)
    world.cloud.remove((CLUSTER, UID))
    world.forget_history()
    await reconcile(world)
    assert world.cloud.changes() == ["CREATE"]
    assert ENSURED in world.events.lines()
    assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]


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
        await reconcile(world)
    else:
        await failed(world, type(error))
    assert world.outcomes.all == [("ensure", outcome)]


async def test_a_reconcile_with_nothing_to_do_is_not_counted(world: World) -> None:
    await served(world)
    await reconcile(world)
    assert world.outcomes.all == []


async def test_the_log_tells_what_changed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ccm_lb")
    world.create()
    await reconcile(world)
    world.delete()
    await reconcile(world)
    assert [record.getMessage() for record in caplog.records] == [
        "published the load balancer",
        "deleted the load balancer",
    ]
