"""What is asked for, what the suites wrote down, and what is to be said of it. No pytest in here."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

_REPORTS = Path(__file__).with_name("reports.toml")


@dataclasses.dataclass(frozen=True)
class Reports:
    """Titles by id: of faults that tests play, and of those that wait for something; `needs` says for what."""

    played: Mapping[str, str]
    waiting: Mapping[str, str]
    needs: Mapping[str, str]

    @classmethod
    def read(cls, path: Path = _REPORTS) -> Self:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        waiting = found["waiting"]
        titles, needs = ({name: one[field] for name, one in waiting.items()} for field in ("title", "needs"))
        return cls(found["played"], titles, needs)

    def __contains__(self, name: str) -> bool:
        return name in self.played or name in self.waiting


@dataclasses.dataclass(frozen=True)
class Run:
    """One test that plays a fault. `outcome` is passed, skipped or failed; a skipped one has a reason."""

    scenario: str
    test: str
    outcome: str
    reason: str = ""

    def line(self) -> str:
        return json.dumps(dataclasses.asdict(self)) + "\n"


def read_runs(folder: Path) -> list[Run]:
    """What all suites wrote. Empty when none did."""
    files = sorted(folder.glob("*.jsonl"))
    return [Run(**json.loads(line)) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One fault: `missing` says why it counts as not played; `skipped` why some or all of its tests did not run."""

    scenario: str
    title: str
    missing: str | None
    skipped: Sequence[str]
    passed: int


def judge(reports: Reports, runs: Iterable[Run]) -> list[Verdict]:
    """
    One verdict for each fault that tests play.

    A fault none of whose tests could run here (no root, a program missing) is not missing: its tests have said so. One without any test
    is, and so is one with a test that failed.
    """
    by_scenario: dict[str, list[Run]] = {name: [] for name in reports.played}
    for run in runs:
        by_scenario.setdefault(run.scenario, []).append(run)
    return [_verdict(name, title, by_scenario[name]) for name, title in reports.played.items()]


def _verdict(name: str, title: str, runs: Sequence[Run]) -> Verdict:
    failed = [run.test for run in runs if run.outcome == "failed"]
    missing = None
    if not runs:
        missing = "no test with this mark ran"
    elif failed:
        missing = f"{failed[0]} failed"
    skipped = sorted({run.reason for run in runs if run.outcome == "skipped"})
    return Verdict(name, title, missing, skipped, sum(run.outcome == "passed" for run in runs))


def told(verdicts: Sequence[Verdict]) -> list[str]:
    """What a person reads, a line each."""
    played = [one for one in verdicts if one.missing is None and one.passed]
    lines = [f"scenarios: {len(played)} of {len(verdicts)} faults from public reports were played"]
    for one in verdicts:
        if one.missing is None and one.skipped:
            what = "in part skipped" if one.passed else "skipped"
            lines.append(f"  {one.scenario} {what}: {'; '.join(one.skipped)} ({one.title})")
    lines += [f"  {one.scenario} MISSING: {one.missing} ({one.title})" for one in verdicts if one.missing is not None]
    return lines
