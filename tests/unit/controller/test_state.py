"""What is known, what was done, and what was left behind."""

from __future__ import annotations

import pytest

from ccm_lb.controller import predicates
from ccm_lb.controller.plan import Operation, Synced
from ccm_lb.controller.predicates import Scope
from ccm_lb.controller.state import ClusterState
from ccm_lb.kube import patches
from ccm_lb.objects import TO_BE_DELETED_TAINT, Key, Service
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak

KEY = Key("lb", "web")
OTHER_UID = "another-uid"
SERVED = (builders.finalizers(), builders.published({"ip": "203.0.113.1", "ipMode": "Proxy"}))


@pytest.fixture
def state() -> ClusterState:
    """Of the replica that holds the Lease, with three nodes."""
    state = ClusterState(Scope())
    state.take_over()
    for node in builders.nodes():
        state.see_node(node)
    return state


def at(version: int, *tweaks: Tweak) -> Service:
    return builders.service(builders.version(version), *tweaks)


def serve(state: ClusterState, version: int = 5, *tweaks: Tweak) -> Service:
    """See a Service, and record that its load balancer was written."""
    service = at(version, *SERVED, *tweaks)
    state.see(service)
    record(state, service)
    return service


def record(state: ClusterState, service: Service) -> None:
    status = patches.comparable(service.status.load_balancer)
    state.record(service, Synced(predicates.load_balancer_inputs(service), state.node_set(), status))


# ---- operations


def test_of_an_unknown_service_nothing_is_needed(state: ClusterState) -> None:
    assert state.operation(KEY) is Operation.NOTHING


def test_a_service_is_ensured_then_left_alone(state: ClusterState) -> None:
    service = at(5, *SERVED)
    state.see(service)
    assert state.operation(KEY) is Operation.ENSURE
    record(state, service)
    assert state.operation(KEY) is Operation.NOTHING


def test_a_service_to_be_verified_is_ensured_again(state: ClusterState) -> None:
    state.unsync(serve(state))
    assert state.operation(KEY) is Operation.ENSURE


def test_a_doubtful_service_is_asked_about_until_it_was(state: ClusterState) -> None:
    serve(state)
    state.doubt(KEY)
    assert (state.operation(KEY), state.is_doubtful(KEY)) == (Operation.CLEANUP, True)
    state.asked(KEY)
    assert (state.operation(KEY), state.is_doubtful(KEY)) == (Operation.NOTHING, False)


# ---- services that come and go


def test_an_older_service_changes_nothing(state: ClusterState) -> None:
    serve(state, 5)
    assert not state.see(at(4, builders.port(81)))
    assert state.operation(KEY) is Operation.NOTHING


def test_a_service_that_is_no_concern_of_ours_is_not_kept(state: ClusterState) -> None:
    assert state.see(at(5, builders.of_type("ClusterIP")))
    assert state.services.get(KEY) is None
    assert state.left_behind(KEY) == ()


def test_a_service_that_stops_to_concern_us_leaves_its_load_balancer_behind(state: ClusterState) -> None:
    service = serve(state, 5)
    state.see(at(6, builders.of_type("ClusterIP")))  # the finalizer was stripped with the same write
    assert [one.uid for one in state.left_behind(KEY)] == [service.uid]
    assert state.operation(KEY) is Operation.CLEANUP


def test_a_service_that_took_the_name_of_another_leaves_that_one_behind(state: ClusterState) -> None:
    old = serve(state, 5)
    state.see(at(6, builders.uid(OTHER_UID)))
    assert [one.uid for one in state.left_behind(KEY)] == [old.uid]
    state.removed(old)
    assert state.left_behind(KEY) == ()
    assert state.operation(KEY) is Operation.ENSURE


def test_several_can_be_left_behind_under_one_name(state: ClusterState) -> None:
    first = serve(state, 5)
    second = serve(state, 6, builders.uid(OTHER_UID))
    state.gone(KEY)
    assert {one.uid for one in state.left_behind(KEY)} == {first.uid, second.uid}
    state.removed(first)
    assert [one.uid for one in state.left_behind(KEY)] == [second.uid]


def test_what_was_never_left_behind_can_be_removed(state: ClusterState) -> None:
    state.removed(at(5))
    assert state.left_behind(KEY) == ()


@pytest.mark.parametrize(
    ("tweaks", "recorded", "left"),
    [
        pytest.param(SERVED, True, True, id="served"),
        pytest.param((builders.finalizers(),), False, True, id="perhaps-half-made"),
        pytest.param((), True, True, id="served-and-stripped"),
        pytest.param((), False, False, id="never-touched"),
    ],
)
def test_a_service_gone_leaves_behind_what_may_exist(
    state: ClusterState,
    tweaks: tuple[Tweak, ...],
    recorded: bool,  # noqa: FBT001
    left: bool,  # noqa: FBT001
) -> None:
    service = at(5, *tweaks)
    state.see(service)
    if recorded:
        record(state, service)
    state.gone(KEY)
    assert state.services.get(KEY) is None
    assert bool(state.left_behind(KEY)) is left


def test_without_the_lease_what_is_left_behind_is_another_ones_work() -> None:
    state = ClusterState(Scope())
    state.see(at(5, *SERVED))
    state.gone(KEY)
    assert state.left_behind(KEY) == ()


def test_a_service_gone_twice_is_gone_once(state: ClusterState) -> None:
    serve(state)
    state.gone(KEY)
    state.gone(KEY, 9)
    assert len(state.left_behind(KEY)) == 1


@pytest.mark.parametrize(
    ("late", "back"), [(8, False), (9, True)], ids=["from-before-the-end", "the-object-at-the-version-of-the-end"]
)
def test_a_service_not_shown_any_more_may_be_seen_as_of_that_version(
    state: ClusterState,
    late: int,
    back: bool,  # noqa: FBT001
) -> None:
    # Through a field selector the end bears the version of the type change, and a GET then shows that very version.
    serve(state, 5)
    state.gone(KEY, 9)
    assert state.see(at(late, *SERVED, builders.of_type("ClusterIP"))) is back


@pytest.mark.parametrize(
    ("known", "believed"), [(5, True), (4, False)], ids=["nothing-came-since", "something-came-since"]
)
def test_a_404_counts_for_what_was_known_when_it_was_asked_for(
    state: ClusterState,
    known: int,
    believed: bool,  # noqa: FBT001
) -> None:
    serve(state, 5)
    state.vanished(KEY, known)
    assert (state.services.get(KEY) is None) is believed


# ---- finalizers of others


def foreign(state: ClusterState) -> Service:
    service = at(5, builders.of_class("example.com/other"), builders.finalizers())
    state.see(service)
    return service


def test_a_finalizer_of_a_foreign_class_is_looked_into_once(state: ClusterState) -> None:
    service = foreign(state)
    assert state.operation(KEY) is Operation.CLEANUP
    state.disclaim(service)
    assert state.operation(KEY) is Operation.NOTHING


def test_a_foreign_service_that_becomes_ours_is_ours(state: ClusterState) -> None:
    state.disclaim(foreign(state))
    state.see(at(6, builders.finalizers()))
    assert state.operation(KEY) is Operation.ENSURE


def test_a_foreign_service_leaves_nothing_of_ours_behind(state: ClusterState) -> None:
    state.disclaim(foreign(state))
    state.gone(KEY)
    assert state.left_behind(KEY) == ()


# ---- nodes


def test_nodes_are_sorted_and_only_the_eligible_ones_get_traffic(state: ClusterState) -> None:
    state.see_node(builders.node("n0", builders.deleting()))
    assert [node.name for node in state.eligible_nodes()] == ["n1", "n2", "n3"]
    assert sorted(state.node_names()) == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("tweak", "changes"),
    [
        pytest.param({"spec": {"providerID": "fake://new"}}, True, id="provider-id"),
        pytest.param(builders.addresses("192.0.2.99"), True, id="address"),
        pytest.param(builders.deleting(), True, id="deleting"),
        pytest.param(builders.tainted(TO_BE_DELETED_TAINT), True, id="about-to-go"),
        pytest.param(builders.labelled("zone", "b"), False, id="label"),
    ],
)
def test_a_node_event_says_whether_traffic_changes(state: ClusterState, tweak: Tweak, changes: bool) -> None:  # noqa: FBT001
    assert state.see_node(builders.node("n1", builders.version(9), tweak)) is changes


@pytest.mark.parametrize(
    ("draining", "operation"), [(False, Operation.UPDATE_NODES), (True, Operation.NOTHING)], ids=["not", "drained"]
)
def test_a_node_that_is_about_to_go_concerns_those_who_do_not_drain_it(
    state: ClusterState,
    draining: bool,  # noqa: FBT001
    operation: Operation,
) -> None:
    service = at(6, builders.finalizers())
    state.see(service)
    nodes = state.node_set(draining=draining)
    inputs, status = predicates.load_balancer_inputs(service), patches.comparable(service.status.load_balancer)
    state.record(service, Synced(inputs, nodes, status, draining))
    state.see_node(builders.node("n1", builders.version(9), builders.tainted(TO_BE_DELETED_TAINT)))
    assert (state.operation(KEY), state.outdated()) == (operation, [] if draining else [KEY])
    assert len(state.eligible_nodes(draining=draining)) == (3 if draining else 2)


def test_a_node_change_that_moves_no_traffic_still_shows_in_raw(state: ClusterState) -> None:
    state.eligible_nodes()
    state.see_node(builders.node("n1", builders.version(9), builders.labelled("zone", "b")))
    assert state.eligible_nodes()[0].metadata.labels == {"zone": "b"}


def test_an_old_node_event_changes_nothing(state: ClusterState) -> None:
    state.see_node(builders.node("n1", builders.version(9)))
    assert not state.see_node(builders.node("n1", builders.version(8), builders.deleting()))
    assert len(state.eligible_nodes()) == 3


@pytest.mark.parametrize(
    ("at_version", "gone"), [(0, True), (9, True), (4, False)], ids=["unknown-version", "newer", "an-older-nodes-end"]
)
def test_a_node_gone_takes_its_traffic_along(state: ClusterState, at_version: int, gone: bool) -> None:  # noqa: FBT001
    state.see_node(builders.node("n1", builders.version(5)))
    assert state.node_gone("n1", at_version) is gone
    assert (len(state.eligible_nodes()) == 2) is gone


def test_an_unknown_or_excluded_node_gone_moves_no_traffic(state: ClusterState) -> None:
    state.see_node(builders.node("n9", builders.deleting()))
    assert not state.node_gone("n9")
    assert not state.node_gone("n8")


@pytest.mark.parametrize(
    ("known", "believed"), [(5, True), (4, False)], ids=["nothing-came-since", "something-came-since"]
)
def test_a_404_of_a_node_counts_for_what_was_known_then(
    state: ClusterState,
    known: int,
    believed: bool,  # noqa: FBT001
) -> None:
    state.see_node(builders.node("n1", builders.version(5)))
    assert state.node_vanished("n1", known) is believed


def test_the_version_of_a_node_is_known_also_when_it_is_gone(state: ClusterState) -> None:
    state.node_gone("n1", 9)
    assert (state.node_version("n1"), state.node_version("n8")) == (9, 0)


def test_services_are_outdated_when_their_nodes_are_others_now(state: ClusterState) -> None:
    service = serve(state)
    state.see(at(5, builders.named("never-synced"), builders.uid(OTHER_UID)))
    assert state.outdated() == []
    state.see_node(builders.node("n4"))
    assert state.outdated() == [KEY]
    assert state.operation(KEY) is Operation.UPDATE_NODES
    record(state, service)
    assert state.outdated() == []


def test_what_is_suspected_is_verified_until_it_was_looked_at_or_is_written_anyway(state: ClusterState) -> None:
    service = serve(state)
    before = state.settled(service)
    assert before is state.synced(service)
    state.suspect(service)
    assert (state.operation(KEY), state.operation(KEY, restoring=False)) == (Operation.VERIFY, Operation.NOTHING)
    state.cleared(service)
    assert state.operation(KEY) is Operation.NOTHING
    state.suspect(service)
    state.begin(service)
    record(state, service)
    assert state.operation(KEY) is Operation.NOTHING
    assert state.settled(service) is not before


def test_what_needs_something_else_is_not_settled(state: ClusterState) -> None:
    service = serve(state)
    state.suspect(service)
    state.see_node(builders.node("n4"))
    assert state.settled(service) is None
    assert state.operation(KEY) is Operation.UPDATE_NODES
