"""The part that runs inside pytest: it knows the ids and, when asked, writes down what became of the marked tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scenarios.verdicts import Reports, Run

FOLDER = "SCENARIOS_FOLDER"  # the variable that names the folder; `make` sets it
_MARK = "scenario"


class Recorder:
    """A plug-in. Without a folder it only refuses ids that nobody reported."""

    def __init__(self, reports: Reports, folder: Path | None) -> None:
        self._reports = reports
        self._folder = folder

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for name in sorted({str(one) for mark in item.iter_markers(_MARK) for one in mark.args}):
                if name not in self._reports:
                    raise pytest.UsageError(
                        f'{item.nodeid}: scenario("{name}"): no such id in tests/scenarios/reports.toml'
                    )
                # Properties go with the reports; marks do not.
                item.user_properties.append((_MARK, name))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names = [value for key, value in report.user_properties if key == _MARK]
        outcome = _outcome(report)
        if self._folder is None or not names or outcome is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(Run(str(name), report.nodeid, outcome, _reason(report)).line() for name in names)


def from_environment(*, writes: bool = True) -> Recorder:
    folder = os.environ.get(FOLDER) if writes else None
    return Recorder(Reports.read(), Path(folder) if folder else None)


def _outcome(report: pytest.TestReport) -> str | None:
    """None for the parts of a test that say nothing: what comes before and after it, when that went well."""
    if report.skipped and hasattr(report, "wasxfail"):
        return "failed"  # expected or not: the fault is there
    if report.when == "call" or not report.passed:
        return report.outcome
    return None


def _reason(report: pytest.TestReport) -> str:
    if report.skipped and isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return ""
