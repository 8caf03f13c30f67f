"""Which operation a Service needs, as a table over what it is and what was done last."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.controller import conditions, plan, predicates
from ccm_lb.controller.conditions import Condition
from ccm_lb.controller.plan import Operation, Synced
from ccm_lb.controller.predicates import Scope
from ccm_lb.kube import patches
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak

SERVED: tuple[Tweak, ...] = (builders.finalizers(), builders.published({"ip": "203.0.113.1", "ipMode": "Proxy"}))
NODES = predicates.node_set(builders.nodes())
OTHER_NODES = predicates.node_set(builders.nodes("n1"))


PAUSED = builders.annotated(ccm_annotations.PAUSED, "true")


def says(*said: Condition) -> Tweak:
    """These conditions stand."""
    entries = conditions.entries(builders.service(), said, "2026-01-01T00:00:00Z", written_anyway=True)
    return {"status": {"conditions": [*entries]}}


SAYS_PAUSED = says(conditions.paused(builders.service(), ccm_annotations.PAUSED))
LACKING = conditions.degraded([("NoNodes", "there is no node")])


def synced(*tweaks: Tweak) -> Synced:
    """The last success, for a Service as it was then."""
    service = builders.service(*SERVED, *tweaks)
    status = patches.comparable(service.status.load_balancer)
    return Synced(predicates.load_balancer_inputs(service), NODES, status)


def decide(*tweaks: Tweak, last: Synced | None, nodes: frozenset[object] = NODES) -> Operation:
    return plan.decide(builders.service(*tweaks), nodes, last, Scope())


@pytest.mark.parametrize(
    ("tweaks", "last", "expected"),
    [
        pytest.param((), None, Operation.ENSURE, id="new"),
        pytest.param(SERVED, None, Operation.ENSURE, id="unknown-since-a-restart"),
        pytest.param(SERVED, synced(), Operation.NOTHING, id="as-it-was"),
        pytest.param((*SERVED, builders.labelled("a", "b")), synced(), Operation.NOTHING, id="label-changed"),
        pytest.param((*SERVED, builders.port(81)), synced(), Operation.ENSURE, id="port-changed"),
        pytest.param((*SERVED, builders.uid("other")), synced(), Operation.ENSURE, id="created-again"),
        pytest.param((SERVED[1],), synced(), Operation.RESTORE, id="finalizer-stripped"),
        pytest.param((*SERVED, builders.published()), synced(), Operation.RESTORE, id="status-wiped"),
        pytest.param(
            (*SERVED, builders.published({"ip": "203.0.113.1"})), synced(), Operation.RESTORE, id="ip-mode-dropped"
        ),
        pytest.param((*SERVED, builders.deleting()), synced(), Operation.CLEANUP, id="deleting"),
        pytest.param((*SERVED, builders.deleting()), None, Operation.CLEANUP, id="deleting-since-before"),
        pytest.param((*SERVED, builders.of_type("ClusterIP")), synced(), Operation.CLEANUP, id="type-changed"),
        pytest.param((*SERVED, builders.of_class("x/y")), synced(), Operation.CLEANUP, id="class-changed"),
        pytest.param(
            (builders.deleting(), builders.finalizers("x/y")), None, Operation.NOTHING, id="deleting-unserved"
        ),
        pytest.param(
            (builders.deleting(), builders.finalizers("x/y")), synced(), Operation.NOTHING, id="ours-stripped"
        ),
        pytest.param((builders.of_type("ClusterIP"),), None, Operation.NOTHING, id="other-type"),
        pytest.param((builders.of_class("x/y"),), None, Operation.NOTHING, id="other-class"),
    ],
)
def test_the_operation(tweaks: tuple[Tweak, ...], last: Synced | None, expected: Operation) -> None:
    assert decide(*tweaks, last=last) is expected


@pytest.mark.parametrize(
    ("tweaks", "expected"),
    [
        pytest.param((), Operation.PAUSE, id="new"),
        pytest.param((*SERVED, builders.port(81)), Operation.PAUSE, id="changed"),
        pytest.param((*SERVED, builders.deleting()), Operation.PAUSE, id="deleting"),
        pytest.param((*SERVED, SAYS_PAUSED), Operation.NOTHING, id="says so already"),
        pytest.param((*SERVED, SAYS_PAUSED, builders.port(81)), Operation.NOTHING, id="changed since"),
        pytest.param((*SERVED, SAYS_PAUSED, builders.deleting()), Operation.PAUSE, id="deleted since"),
        pytest.param((*SERVED, builders.of_type("ClusterIP")), Operation.PAUSE, id="of another type"),
        pytest.param((builders.of_type("ClusterIP"),), Operation.NOTHING, id="never served"),
        pytest.param((*SERVED, builders.of_class("x/y")), Operation.NOTHING, id="another's class"),
    ],
)
@pytest.mark.parametrize("last", [None, synced()], ids=["unknown", "synced"])
def test_of_a_paused_service_it_is_said_and_nothing_else_is_done(
    tweaks: tuple[Tweak, ...], last: Synced | None, expected: Operation
) -> None:
    assert decide(PAUSED, *tweaks, last=last, nodes=OTHER_NODES) is expected


def test_a_wish_to_pause_that_cannot_be_read_pauses_nothing() -> None:
    misspelt = builders.annotated(ccm_annotations.PAUSED, "yes")
    assert decide(*SERVED, misspelt, last=synced()) is Operation.ENSURE


@pytest.mark.parametrize(
    ("known", "tweaks", "expected"),
    [
        pytest.param(frozenset({LACKING}), (says(LACKING),), set(), id="stands"),
        pytest.param(frozenset({LACKING}), (), {"conditions"}, id="wiped"),
        pytest.param(frozenset(), (says(LACKING),), {"conditions"}, id="put on"),
        pytest.param(None, (says(LACKING),), set(), id="not looked after"),
    ],
)
def test_conditions_that_are_undone(
    known: frozenset[Condition] | None, tweaks: tuple[Tweak, ...], expected: set[str]
) -> None:
    last = dataclasses.replace(synced(), conditions=known)
    assert plan.undone(builders.service(*SERVED, *tweaks), last) == expected


def test_other_nodes_alone_are_an_update() -> None:
    assert decide(*SERVED, last=synced(), nodes=OTHER_NODES) is Operation.UPDATE_NODES


def test_other_nodes_and_another_change_are_one_ensure() -> None:
    assert decide(*SERVED, builders.port(81), last=synced(), nodes=OTHER_NODES) is Operation.ENSURE


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(NODES, Operation.NOTHING, id="nothing-else"),
        pytest.param(OTHER_NODES, Operation.UPDATE_NODES, id="other-nodes"),
    ],
)
def test_what_is_undone_can_be_left_for_now(nodes: frozenset[Hashable], expected: Operation) -> None:
    service = builders.service(*SERVED, builders.published())
    assert plan.decide(service, nodes, synced(), Scope(), restoring=False) is expected


@pytest.mark.parametrize(
    ("tweaks", "last", "expected"),
    [
        pytest.param(SERVED, synced(), set(), id="nothing"),
        pytest.param((SERVED[1],), synced(), {"finalizer"}, id="finalizer"),
        pytest.param((*SERVED, builders.published()), synced(), {"status"}, id="status"),
        pytest.param((builders.published(),), synced(), {"finalizer", "status"}, id="both"),
        pytest.param((), None, set(), id="nothing-was-done"),
    ],
)
def test_what_is_undone(tweaks: tuple[Tweak, ...], last: Synced | None, expected: set[str]) -> None:
    assert plan.undone(builders.service(*tweaks), last) == expected


def test_other_nodes_do_not_stop_a_clean_up() -> None:
    assert decide(*SERVED, builders.deleting(), last=synced(), nodes=OTHER_NODES) is Operation.CLEANUP


@pytest.mark.parametrize("status", [(), ({"ip": "198.51.100.1"},)], ids=["empty", "filled"])
def test_a_status_that_is_somebody_elses_to_publish_is_not_looked_at(status: tuple[Tweak, ...]) -> None:
    last = dataclasses.replace(synced(), status=None)
    assert decide(*SERVED, builders.published(*status), last=last) is Operation.NOTHING


def test_an_ip_mode_that_is_absent_is_vip() -> None:
    last = synced(builders.published({"ip": "203.0.113.1", "ipMode": "VIP"}))
    assert decide(*SERVED, builders.published({"ip": "203.0.113.1"}), last=last) is Operation.NOTHING
