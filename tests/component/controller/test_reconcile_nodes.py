"""Nodes that come and go under a load balancer."""

from __future__ import annotations

import pytest

from ccm_lb.errors import CCMError, ImplementedElsewhereError, NotLeaderError, RetryAfterError, TerminalError
from ccm_lb.objects import EXCLUDE_LABEL, Key
from ccm_lb.testing import builders
from tests.component.world import CLUSTER, KEY, NO_NODES, OTHER_UID, UID, UPDATED, World


@pytest.mark.parametrize("change", ["added", "removed"])
async def test_a_node_change_alone_is_an_update(world: World, change: str) -> None:
    await world.reconciled()
    world.api.create(builders.node_json("n4")) if change == "added" else world.api.delete(builders.node_json("n3"))
    await world.reconcile()
    assert world.cloud.verbs() == ["update"]
    assert world.events.lines() == [UPDATED]
    assert world.targets == (("n1", "n2", "n3", "n4") if change == "added" else ("n1", "n2"))
    assert world.api.patches == []


@pytest.mark.scenario("B60")
async def test_the_last_node_gone_is_said_and_the_status_stays(world: World) -> None:
    await world.reconciled()
    for name in ("n1", "n2", "n3"):
        world.api.edit(builders.node_json(name), builders.labelled(EXCLUDE_LABEL, "true"))
    await world.reconcile()
    assert world.events.lines() == [NO_NODES]
    assert world.targets == ()
    assert world.ingress


@pytest.mark.scenario("B61")
async def test_a_cordoned_node_stays(world: World) -> None:
    await world.reconciled()
    world.api.edit(builders.node_json("n1"), {"spec": {"unschedulable": True}})
    await world.reconcile()
    assert world.cloud.calls == []


async def test_a_changed_port_and_node_are_one_ensure(world: World) -> None:
    await world.reconciled()
    world.api.create(builders.node_json("n4"))
    world.edit(builders.port(81))
    await world.reconcile()
    assert world.cloud.verbs() == ["ensure"]
    assert world.targets == ("n1", "n2", "n3", "n4")


async def test_a_failed_update_is_said_with_the_nodes_and_followed_by_a_full_ensure(world: World) -> None:
    await world.reconciled()
    world.api.create(builders.node_json("n4"))
    world.cloud.script.then("update", CCMError("conflict"))
    await world.failed()
    assert world.events.lines() == [
        "Warning UpdateLoadBalancerFailed Error updating load balancer with new hosts [n1 n2 n3 n4] "
        "[node names limited, total number of nodes: 4], error: conflict"
    ]
    await world.reconcile()
    assert world.cloud.verbs() == ["update", "ensure"]
    assert world.targets == ("n1", "n2", "n3", "n4")


@pytest.mark.scenario("B29")
async def test_a_load_balancer_deleted_in_the_cloud_is_made_again_after_a_failed_update(world: World) -> None:
    await world.reconciled()
    world.cloud.remove((CLUSTER, UID))
    world.api.create(builders.node_json("n4"))
    world.forget_history()
    await world.failed()
    await world.reconcile()
    assert world.cloud.changes() == ["CREATE"]
    assert world.events.reasons()[0] == "UpdateLoadBalancerFailed"
    assert [one["ip"] for one in world.ingress] == ["203.0.113.2"]
    assert world.targets == ("n1", "n2", "n3", "n4")


@pytest.mark.scenario("B11")
async def test_a_wiped_status_does_not_hide_the_load_balancer_from_a_node_update(world: World) -> None:
    await world.reconciled()
    world.edit(builders.published())
    world.api.create(builders.node_json("n4"))
    await world.reconcile()
    await world.reconcile()
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
    await world.reconciled()
    world.api.create(builders.node_json("n4"))
    world.cloud.script.then("update", error)
    await world.failed(raised)
    await world.reconcile()
    assert world.cloud.verbs() == ["update", "update"]


async def test_an_update_that_is_implemented_elsewhere_counts_as_done(world: World) -> None:
    await world.reconciled()
    world.api.create(builders.node_json("n4"))
    world.cloud.script.then("update", ImplementedElsewhereError())
    await world.reconcile()
    await world.reconcile()
    assert world.cloud.verbs() == ["update"]
    assert world.events.all == []


async def test_a_terminal_update_is_handed_on_as_such(world: World) -> None:
    await world.reconciled()
    world.api.create(builders.node_json("n4"))
    world.cloud.script.then("update", TerminalError("too many targets"))
    await world.failed(TerminalError)
    assert world.events.reasons() == ["UpdateLoadBalancerFailed"]


async def test_the_backend_gets_the_nodes_sorted_by_name_and_with_their_raw_object() -> None:
    world = World()
    world.add_nodes("n3", "n1")
    world.api.create(builders.node_json("n2", builders.labelled("zone", "b")))
    world.create()
    await world.reconcile()
    assert world.cloud.calls[-1].nodes == ("n1", "n2", "n3")
    assert [node.raw["metadata"].get("labels") for node in world.state.eligible_nodes()] == [None, {"zone": "b"}, None]


async def test_what_is_remembered_of_the_nodes_is_one_set_for_all_services(world: World) -> None:
    await world.reconciled()
    world.api.edit(builders.node_json("n1"), {"metadata": {"labels": {"changes": "no target"}}})
    other = builders.service_json({"metadata": {"name": "other", "uid": OTHER_UID}})
    world.api.create(other)
    await world.reconciler.reconcile(Key(KEY.namespace, "other"))
    world.api.create(builders.node_json("n4"))
    for key in (KEY, Key(KEY.namespace, "other")):
        await world.reconciler.reconcile(key)
    world.api.edit(builders.node_json("n4"), {"metadata": {"labels": {"changes": "no target"}}})
    synced = [world.state.synced(service) for service in world.state.services]
    assert len(synced) == 2
    assert all(one is not None and one.nodes is world.state.node_set() for one in synced)
