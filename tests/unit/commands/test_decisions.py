"""What is decided for a Service before the cloud is called, in words."""

from __future__ import annotations

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.commands.decisions import decisions
from ccm_lb.controller import predicates
from ccm_lb.controller.predicates import Scope
from ccm_lb.objects import EXCLUDE_LABEL, TO_BE_DELETED_TAINT, Node
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak


@pytest.mark.parametrize(
    ("tweaks", "scope", "answers"),
    [
        pytest.param([], Scope(), ["yes", "wanted", "missing"], id="a new one"),
        pytest.param([builders.finalizers()], Scope(), ["yes", "wanted", "there"], id="one that is served"),
        pytest.param([], Scope(frozenset({"a"}), unclassed=False), ["no", "none", "none"], id="none without a class"),
        pytest.param(
            [builders.of_class("a")], Scope(frozenset({"a"})), ["yes", "wanted", "missing"], id="of our class"
        ),
        pytest.param(
            [builders.of_class("b"), builders.finalizers()], Scope(), ["no", "to be removed", "there"], id="class left"
        ),
        pytest.param(
            [builders.of_type("ClusterIP"), builders.finalizers()],
            Scope(),
            ["yes", "to be removed", "there"],
            id="type left",
        ),
        pytest.param(
            [builders.deleting(), builders.finalizers()], Scope(), ["yes", "to be removed", "there"], id="deleted"
        ),
        pytest.param([builders.deleting()], Scope(), ["yes", "none", "missing"], id="deleted before it was served"),
        pytest.param(
            [builders.annotated(ccm_annotations.PAUSED, "true")], Scope(), ["yes", "left alone", "missing"], id="paused"
        ),
    ],
)
def test_each_question_has_an_answer_and_a_reason(tweaks: list[Tweak], scope: Scope, answers: list[str]) -> None:
    found = list(decisions(builders.service(*tweaks), scope))
    assert [one.question for one in found] == ["this controller", "load balancer", "finalizer"]
    assert [one.answer for one in found] == answers
    assert all(one.reason for one in found)


@pytest.mark.parametrize(
    ("node", "draining", "says"),
    [
        pytest.param(builders.node(), False, "", id="it gets traffic"),
        pytest.param(builders.node("n1", builders.deleting()), False, "being deleted", id="under deletion"),
        pytest.param(builders.node("n1", builders.labelled(EXCLUDE_LABEL, "")), False, EXCLUDE_LABEL, id="excluded"),
        pytest.param(builders.node("n1", builders.tainted(TO_BE_DELETED_TAINT)), False, "autoscaler", id="about to go"),
        pytest.param(builders.node("n1", builders.tainted(TO_BE_DELETED_TAINT)), True, "", id="drained by the cloud"),
    ],
)
def test_a_node_is_left_out_for_a_reason_and_only_then(node: Node, draining: bool, says: str) -> None:  # noqa: FBT001
    said = predicates.left_out(node, draining=draining)
    assert (says in said) if says else not said
    assert bool(said) is not bool(predicates.eligible_nodes([node], draining=draining))
