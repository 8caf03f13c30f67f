"""docs/divergences.md by itself: every row has a reason, every reason a row and a test."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.parity import divergences, scenarios

PAGE = divergences.read()
ROWS = divergences.rows(PAGE)
REASONS = divergences.reasons(PAGE)
KNOWN = {one.name: one for one in scenarios.ALL}


def test_every_row_has_a_reason_and_every_reason_a_row() -> None:
    used = {row.why for row in ROWS}
    assert used == set(REASONS)


@pytest.mark.parametrize("title", list(REASONS))
def test_a_reason_names_tests_that_are_there(title: str) -> None:
    reason = REASONS[title]
    assert reason.tests, "name the test that shows that ours is better"
    missing = [f"{file}::{function}" for file, function in reason.tests if not divergences.exists(file, function)]
    assert missing == []


def test_every_row_is_of_one_scenario_that_is_there_once() -> None:
    places = [row.difference.place for row in ROWS]
    assert len(set(places)) == len(places)
    assert {row.difference.scenario for row in ROWS} <= set(KNOWN)


def test_every_table_test_of_upstream_s_is_explained(binaries: dict[str, Path]) -> None:
    """The list of upstream's tests is its own, as `upstream_tests.txt` keeps it; each case exists here or says why not."""
    listed = divergences.cells(PAGE, divergences.UPSTREAM)
    wanted = Path(__file__).with_name("upstream_tests.txt").read_text().splitlines()
    assert [f"{test}: {case}" for test, case, _ in listed] == wanted
    for test, case, here in listed:
        for name in re.findall(r"“(.+?)”", here):
            assert name in KNOWN, f"{test}: {case}: no scenario is called {name}"
        for file, function in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", here):
            assert divergences.exists(file, function), f"{test}: {case}: {file}::{function} is not there"
        assert here
