"""The picture of VIP and Proxy is drawn from the measurements beside it; tests/packets holds those against packets."""

import dataclasses

import pytest

from tests.packets import facts, panels, picture
from tests.packets.facts import Row, Sight

OUTSIDE = Sight("outside", served=True, passed=True, peer="load balancer", header="client", counter=(0, 1))
POD = Sight("pod", served=True, passed=False, peer="pod", header=None, counter=(1, 1))
ROW = Row("balancer", "VIP", announces=True, sights=(OUTSIDE, POD), rules={"nftables": 2})


def test_the_committed_picture_is_that_of_the_committed_measurements() -> None:
    assert picture.SVG.read_text(encoding="utf-8") == picture.svg(), "run: python -m tests.packets.picture"


def test_counters_that_grew_and_rules_that_exist_are_the_same_whatever_their_numbers() -> None:
    later = dataclasses.replace(OUTSIDE, counter=(7, 8))
    assert dataclasses.replace(ROW, sights=(later, POD), rules={"iptables": 5}).essence() == ROW.essence()
    for other in (
        dataclasses.replace(ROW, rules={"nftables": 0}),
        dataclasses.replace(ROW, rules={"nftables": 2, "iptables": 0}),
        dataclasses.replace(ROW, sights=(OUTSIDE, dataclasses.replace(POD, passed=True))),
        dataclasses.replace(ROW, sights=(OUTSIDE, dataclasses.replace(POD, header="pod"))),
    ):
        assert other.essence() != ROW.essence()


@pytest.mark.parametrize(
    ("sight", "announces", "said"),
    [
        (dataclasses.replace(POD, passed=True, header="node"), True, ("all pass the load balancer", "good")),
        (POD, True, ("pod go around the load balancer: no PROXY header", "bad")),
        (POD, False, ("pod take the short cut, all are served", "good")),
        (dataclasses.replace(POD, served=False, peer=None), False, ("pod: not served", "bad")),
    ],
)
def test_a_panel_says_what_was_measured(sight: Sight, *, announces: bool, said: tuple[str, str]) -> None:
    assert panels.verdict(dataclasses.replace(ROW, announces=announces, sights=(OUTSIDE, sight))) == said


def test_a_measurement_takes_the_place_of_the_one_before_and_keeps_the_other_modes_rules() -> None:
    after = dataclasses.replace(ROW, rules={"iptables": 3})
    assert facts.merged([ROW], after) == [dataclasses.replace(ROW, rules={"nftables": 2, "iptables": 3})]
