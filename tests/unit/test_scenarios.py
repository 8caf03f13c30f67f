"""The guard over the scenarios: it is content with passed tests alone, and says what it misses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios import __main__ as guard
from tests.scenarios import record, verdicts
from tests.scenarios.verdicts import Reports, Run

ROOT = Path(__file__).parents[2]
REPORTS = Reports(
    {"B01": "The watch falls silent", "B02": "The token expires"}, {"B03": "The address is shared"}, {"B03": "sharing"}
)
PASSED, SKIPPED = Run("B01", "t.py::one", "passed"), Run("B02", "t.py::two", "skipped", "it needs root")


def judged(*runs: Run) -> tuple[list[str], list[str]]:
    """The ids that are missing, and what is said below the first line."""
    found = verdicts.judge(REPORTS, runs)
    return [one.scenario for one in found if one.missing], [line.strip() for line in verdicts.told(found)[1:]]


def test_each_fault_with_a_passed_test_is_played() -> None:
    assert judged(PASSED, Run("B02", "t.py::two", "passed")) == ([], [])


def test_a_fault_without_any_test_is_missing_and_named() -> None:
    assert judged(PASSED) == (["B02"], ["B02 MISSING: no test with this mark ran (The token expires)"])


def test_a_fault_with_a_failed_test_is_missing_though_another_passed() -> None:
    assert judged(PASSED, Run("B01", "t.py::three", "failed"), SKIPPED)[0] == ["B01"]


def test_a_fault_whose_tests_cannot_run_here_is_named_with_the_reason() -> None:
    assert judged(PASSED, SKIPPED) == ([], ["B02 skipped: it needs root (The token expires)"])
    both = (SKIPPED, Run("B02", "t.py::four", "passed"))
    assert judged(PASSED, *both) == ([], ["B02 in part skipped: it needs root (The token expires)"])


def test_the_first_line_counts_what_was_played() -> None:
    found = verdicts.judge(REPORTS, [PASSED, SKIPPED])
    assert verdicts.told(found)[0] == "scenarios: 1 of 2 faults from public reports were played"


TESTS = """
import pytest

@pytest.mark.scenario("B02")
@pytest.mark.scenario("B03")
def test_passes(): ...

@pytest.mark.scenario("B06")
def test_is_skipped(): pytest.skip("it needs root")

@pytest.fixture
def broken(): raise OSError

@pytest.mark.scenario("B07")
def test_has_no_ground(broken): ...

@pytest.mark.scenario("B08")
@pytest.mark.xfail
def test_is_known_to_fail(): assert False

@pytest.mark.parametrize("value", [pytest.param(1, marks=pytest.mark.scenario("B10")), 2])
def test_in_one_row(value): ...

def test_of_something_else(): ...
"""


def run_pytest(folder: Path, tests: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_them.py").write_text(tests)
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = scenario(id)\n")
    own = {record.FOLDER: str(folder / "seen"), "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    variables = {**os.environ, **own}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=folder)


def test_a_suite_writes_down_what_became_of_its_marked_tests(tmp_path: Path) -> None:
    run_pytest(tmp_path, TESTS)
    seen = {(run.scenario, run.outcome, run.reason) for run in verdicts.read_runs(tmp_path / "seen")}
    assert seen == {
        ("B02", "passed", ""),
        ("B03", "passed", ""),
        ("B06", "skipped", "it needs root"),
        ("B07", "failed", ""),
        ("B08", "failed", ""),
        ("B10", "passed", ""),
    }


def test_an_id_that_nobody_reported_stops_the_suite(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, 'import pytest\n\n@pytest.mark.scenario("B00")\ndef test_typed_wrong(): ...\n')
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert 'test_typed_wrong: scenario("B00"): no such id' in done.stdout + done.stderr


def test_the_guard_ends_with_1_when_something_is_missing_and_with_0_when_all_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    variables = {record.FOLDER: str(tmp_path)}
    first, *others = Reports.read().played
    seen = tmp_path / "1.jsonl"
    seen.write_text("".join(Run(name, "t.py::one", "passed").line() for name in others))
    assert guard.main(variables) == 1
    assert f"{first} MISSING: no test with this mark ran" in capsys.readouterr().out
    (tmp_path / "2.jsonl").write_text(Run(first, "t.py::two", "passed").line())
    assert guard.main(variables) == 0


def test_the_guard_says_what_it_lacks_when_no_suite_was_asked_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert guard.main({}) == 2
    assert record.FOLDER in capsys.readouterr().out


def test_an_empty_folder_is_no_excuse(tmp_path: Path) -> None:
    assert guard.main({record.FOLDER: str(tmp_path / "nothing")}) == 1


def test_what_waits_is_not_asked_for_and_has_its_reason() -> None:
    found = Reports.read()
    assert not set(found.played) & set(found.waiting)
    assert all(found.needs.values())
    assert {"B24", "B26", "B38", "B40", "B44", "B64", "B79", "B86", "B98"} == set(found.waiting)


def test_each_fault_has_a_test_that_names_it() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    marked = {name for text in texts for name in re.findall(r'scenario\("(B\d+)"\)', text)}
    assert set(Reports.read().played) - marked == set()
