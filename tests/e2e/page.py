"""The page with the last result: what was played in each delivery, and what became of it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT
from tests.e2e.specs import Outcome, bare

PAGE: Final = ROOT / "docs" / "reference" / "e2e.md"
RESULTS: Final = ROOT / "build" / "e2e"
DELIVERIES: Final = ("proxy", "direct")
_BEGIN: Final = "<!-- result -->\n"


def keep(delivery: str, outcomes: Sequence[Outcome]) -> None:
    """Write down what became of the tests in that delivery, and renew the page if all deliveries have been played."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    kept = _kept(delivery)
    kept.update(
        {bare(one.name): {"verdict": one.verdict, "seconds": one.seconds, "said": one.said} for one in outcomes}
    )
    (RESULTS / f"{delivery}.json").write_text(json.dumps(kept, indent=1, sort_keys=True))
    results = {each: _kept(each) for each in DELIVERIES}
    if all(results.values()):
        head = PAGE.read_text().partition(_BEGIN)[0]
        PAGE.write_text(f"{head}{_BEGIN}\n{table(results)}\n")


def table(results: Mapping[str, Mapping[str, Mapping[str, object]]]) -> str:
    """In Markdown, the tests by name."""
    names = sorted({name for kept in results.values() for name in kept})
    lines = [f"| test | {' | '.join(f'{each} delivery' for each in results)} |", f"|---|{'---|' * len(results)}"]
    for name in names:
        cells = [_cell(kept.get(name)) for kept in results.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(result: Mapping[str, object] | None) -> str:
    if result is None:
        return "not played"
    told = f"{result['verdict']}, {float(str(result['seconds'])):.0f} s"
    return f"{told}: {result['said']}" if result["verdict"] == "skipped" else told


def _kept(delivery: str) -> dict[str, dict[str, object]]:
    file: Path = RESULTS / f"{delivery}.json"
    found: dict[str, dict[str, object]] = json.loads(file.read_text()) if file.exists() else {}
    return found
