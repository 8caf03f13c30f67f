"""What `make bench` says, and what it answers to a mistake."""

import io
import json
import subprocess

import pytest
from click.testing import CliRunner

from tests.bench.__main__ import main
from tests.bench.contestants import CATALOGUE
from tests.bench.narration import Narration, Result

RESULT = Result("go", "the Go controller", 5, 1.25, 0.5, 40.4)


class Said:
    """A narration with a clock that the test moves."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.now = 100.0
        self.steps, self.results = io.StringIO(), io.StringIO()
        self.narration = Narration(self.steps, self.results, as_json=as_json, clock=lambda: self.now)


def test_a_step_has_the_seconds_since_the_start() -> None:
    said = Said()
    said.now += 12.34
    said.narration.step("starting fakecloud")
    assert said.steps.getvalue() == "[   12.3 s] starting fakecloud\n"


def test_progress_is_said_every_few_seconds_and_not_right_after_a_step() -> None:
    said = Said()
    for _ in range(20):
        said.now += 1.0
        said.narration.progress("some")
    assert said.steps.getvalue().count("some") == 4


def test_each_result_is_a_line_of_its_own_below_one_head() -> None:
    said = Said()
    said.narration.result(RESULT)
    assert said.results.getvalue().splitlines()[1].split() == ["go", "1.2", "0.5", "40", "the", "Go", "controller"]
    said.narration.result(RESULT)
    assert said.results.getvalue().count("contestant") == 1
    assert said.results.getvalue().count("\n") == 3


def test_as_json_each_result_is_an_object() -> None:
    said = Said(as_json=True)
    said.narration.result(RESULT)
    assert json.loads(said.results.getvalue()) == {
        "name": "go",
        "what": "the Go controller",
        "services": 5,
        "seconds": 1.25,
        "cpu_seconds": 0.5,
        "peak_mib": 40.4,
    }


def test_the_contestants_are_listed_without_playing() -> None:
    told = CliRunner().invoke(main, ["--list"])
    assert told.exit_code == 0
    assert [line.split()[0] for line in told.output.splitlines()] == list(CATALOGUE)
    assert json.loads(CliRunner().invoke(main, ["--list", "--output=json"]).output) == dict(CATALOGUE)


@pytest.mark.parametrize(
    ("typo", "said"),
    [
        ("ccm-bl", "no contestant 'ccm-bl', did you mean ccm-lb"),
        ("go64", "did you mean go-64"),
        ("python", "expected one of: go, go-64, ccm-lb, ccm-lb-fakecloud"),
    ],
)
def test_a_typo_names_its_neighbours(typo: str, said: str) -> None:
    told = CliRunner().invoke(main, ["--only", typo])
    assert told.exit_code == 2
    assert said in told.output


def test_make_passes_the_name_on() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "bench", "ONLY=ccm-lb go"], capture_output=True, text=True, check=True
    ).stdout
    assert "python -m tests.bench --only=ccm-lb --only=go" in said
