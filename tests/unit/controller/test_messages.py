"""What is told once."""

from __future__ import annotations

import pytest

from ccm_lb.controller import messages
from ccm_lb.controller.messages import Notice

A, B, OLD = Notice("IPModeChosen", "a"), Notice("IPModeConflict", "b"), Notice("IPModeIgnored", "old")


def test_only_what_is_new_is_told() -> None:
    told = messages.Told()
    assert told.news("u1", [A, B, A]) == [A, B]
    assert told.news("u1", [A, B]) == []
    assert told.news("u1", [A]) == []
    assert told.news("u1", [A, B]) == [B], "it went and came back"
    assert told.news("u2", [A]) == [A], "another Service"


def test_a_part_may_be_told_by_itself() -> None:
    told = messages.Told()
    told.news("u1", [A])
    assert told.news("u1", [OLD], only="IPModeIgnored") == [OLD]
    assert told.news("u1", [A, OLD]) == []
    assert told.news("u1", [], only="IPModeIgnored") == []
    assert told.news("u1", [A, OLD]) == [OLD]


def test_what_is_forgotten_is_told_again() -> None:
    told = messages.Told()
    told.news("u1", [A])
    told.forget("u1")
    told.forget("u1")
    assert told.news("u1", [A]) == [A]


def test_every_word_has_its_type() -> None:
    said = [
        messages.chosen("Proxy", ["203.0.113.1"], "because"),
        messages.mixed("both"),
        messages.field_ignored("spec.loadBalancerIP", "192.0.2.1", "why"),
        messages.app_protocol_ignored(["http for port 80"]),
        messages.annotation_ignored("ccm-lb.dev/ip-mode", "VIP", "why"),
        messages.conflict("VIP", ["203.0.113.1"], "bypass"),
        messages.refused("Magic"),
        messages.not_stored({"203.0.113.1": "Proxy"}, []),
        messages.not_stored({"203.0.113.1": "Proxy"}, ["web.example.com"]),
        messages.ignored(["Proxy"], ["n1"]),
        messages.not_published("no"),
        messages.missing(["IPv6"]),
        messages.unknown_ports("a/b", [22]),
        messages.address_not_given(["192.0.2.1"], ["192.0.2.2"]),
        messages.ports_not_served([]),
        messages.address_changed(["192.0.2.1"], []),
        messages.undone_by_the_cloud(),
        messages.drifted(["targets is without n1"], repaired=True),
        messages.drifted_again(),
        messages.contested(messages.STATUS_CHANGED, ["other"], certain=True),
    ]
    assert {one.reason for one in said} == set(messages.TYPES)


def test_of_many_differences_five_are_named() -> None:
    said = messages.drifted([f"d{number}" for number in range(7)], repaired=False).message
    assert "in the cloud: d0; d1; d2; d3; d4 and 2 more; the cloud wins" in said
    assert "it was not as it was written; the Service wins" in messages.drifted([], repaired=True).message


@pytest.mark.parametrize(
    ("writers", "certain", "said"),
    [
        pytest.param(["other", "third"], True, 'by the field manager "other", "third"', id="named"),
        pytest.param(
            ["kubectl"],
            False,
            'and the API server has no record of by whom; field managers that wrote to this Service: "kubectl"',
            id="guessed",
        ),
        pytest.param([], False, "and the API server has no record of by whom", id="unknown"),
        pytest.param([], True, "and the API server has no record of by whom", id="nobody"),
    ],
)
def test_who_contests_is_named_as_far_as_it_is_known(writers: list[str], certain: bool, said: str) -> None:  # noqa: FBT001
    assert messages.contested("It is undone", writers, certain=certain).message == f"It is undone, {said}"


def test_a_long_list_of_nodes_is_cut() -> None:
    message = messages.ignored(["Proxy", "Proxy"], [f"n{number}" for number in range(30)]).message
    assert "on 30 nodes and ignores ipMode Proxy," in message
    assert "n19]" in message
    assert "n20" not in message
