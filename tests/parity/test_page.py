"""docs/divergences.md by itself: every row has a reason, every reason a row and a test."""

import os
import re
from pathlib import Path

import pytest

from tests.controlplane import recipes
from tests.parity import divergences, scenarios

PAGE = divergences.read()
ROWS = divergences.rows(PAGE)
REASONS = divergences.reasons(PAGE)
UPSTREAM_TESTS = (
    Path(os.environ.get("GOMODCACHE", Path.home() / "go" / "pkg" / "mod"))
    / f"k8s.io/cloud-provider@v0.{recipes.default_kube_version().partition('.')[2]}"
    / "controllers/service/controller_test.go"
)
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


def test_every_table_test_of_upstream_s_is_explained_by_something_that_is_there() -> None:
    listed = divergences.cells(PAGE, divergences.UPSTREAM)
    assert len(listed) > 120
    for test, case, here in listed:
        assert here, f"{test}: {case}"
        for name in re.findall(r"“(.+?)”", here):
            assert name in KNOWN, f"{test}: {case}: no scenario is called {name}"
        for file, function in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", here):
            assert divergences.exists(file, function), f"{test}: {case}: {file}::{function} is not there"


def test_no_case_of_upstream_s_tests_is_left_out() -> None:
    """Where Go's modules are at hand, as they are where the peer was built."""
    if not UPSTREAM_TESTS.exists():
        pytest.skip(f"{UPSTREAM_TESTS} is not here: the peer came from the cache")
    functions = re.split(r"^func (Test\w+)\(", UPSTREAM_TESTS.read_text(), flags=re.MULTILINE)[1:]
    tests = {test for test, _, _ in divergences.cells(PAGE, divergences.UPSTREAM)}
    assert tests == set(functions[::2])
    for test, case, _ in divergences.cells(PAGE, divergences.UPSTREAM):
        body = dict(zip(functions[::2], functions[1::2], strict=True))[test]
        assert case == "(no cases)" or f'"{case}"' in body, f"{test} has no case {case}"
