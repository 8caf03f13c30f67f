"""The table, played once to both sides; docs/divergences.md is what they differ in, neither more nor less."""

import asyncio
from pathlib import Path

import pytest

from tests.parity import divergences, play, scenarios

pytestmark = pytest.mark.timeout(900)  # the first test plays everything


@pytest.fixture(scope="module")
def results(binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> play.Results:
    return asyncio.run(play.table(binaries, tmp_path_factory.mktemp("table")))


def test_the_table_is_long_enough_and_each_name_is_there_once() -> None:
    names = [one.name for one in scenarios.ALL]
    assert len(names) >= 120
    assert len(set(names)) == len(names)


def test_the_page_lists_what_differs_and_nothing_else(results: play.Results) -> None:
    found = [one for name, records in results.items() for one in play.differences(name, records)]
    complaints = list(divergences.complaints(found, divergences.rows(divergences.read())))
    assert not complaints, "\n".join(["`python -m tests.parity table --write` rewrites the page:", *complaints])


@pytest.mark.parametrize("scenario", [one.name for one in scenarios.ALL])
def test_ours_ends_as_the_api_promises(results: play.Results, scenario: str) -> None:
    assert play.wrong(scenario, results[scenario]) == []


@pytest.mark.parametrize("scenario", [one.name for one in scenarios.ALL if one.accepted])
def test_what_is_accepted_still_occurs(results: play.Results, scenario: str) -> None:
    (accepted,) = [one.accepted for one in scenarios.ALL if one.name == scenario]
    assert accepted <= set(results[scenario]["ccm"].faults), "take it out of the scenario"
