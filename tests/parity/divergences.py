"""docs/divergences.md: what of it is checked, as data; pure but for `read` and `exists`."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.parity.compare import Difference

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "divergences.md"
TABLE: Final = "| scenario | step | field | theirs | ours | why |"
METRICS: Final = "| metric of the peer | why it is not here |"
UPSTREAM: Final = "| upstream's test | case | here |"
UNEXPLAINED: Final = "?"

_CELL = re.compile(r"(?<!\\)\|")
_LINK = re.compile(r"\[(.+?)\]\(#.+?\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@dataclasses.dataclass(frozen=True)
class Row:
    """A difference that is meant to be, and the name of the reason."""

    difference: Difference
    why: str


@dataclasses.dataclass(frozen=True)
class Reason:
    """A section under `## Reasons`: its text and the tests that it names, as (file, function)."""

    text: str
    tests: tuple[tuple[str, str], ...]


def read() -> str:
    return PAGE.read_text() if PAGE.exists() else ""


def cells(page: str, header: str) -> list[list[str]]:
    """The rows of the table under this header line, cell by cell."""
    found = []
    lines = iter(page.splitlines())
    for line in lines:
        if line == header:
            next(lines)  # the rule
            for row in lines:
                if not row.startswith("|"):
                    break
                found.append([cell.strip().replace("\\|", "|") for cell in _CELL.split(row)[1:-1]])
    return found


def rows(page: str) -> list[Row]:
    """The differences that the page lists."""
    return [
        Row(Difference(scenario, int(step), field, theirs, ours), reason(why))
        for scenario, step, field, theirs, ours, why in cells(page, TABLE)
    ]


def reason(why: str) -> str:
    """The title of the reason that a cell links to."""
    link = _LINK.fullmatch(why)
    return link[1] if link else UNEXPLAINED


def reasons(page: str) -> Mapping[str, Reason]:
    """The sections under `## Reasons`, by their titles."""
    _, _, below = page.partition("\n## Reasons\n")
    below = below.partition("\n## ")[0]
    found = {}
    for section in below.split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        found[title.strip()] = Reason(text.strip(), tuple(_TEST.findall(text)))
    return found


def exists(file: str, function: str) -> bool:
    """Whether this test is there."""
    path = ROOT / file
    return path.exists() and re.search(rf"^(async )?def {function}\(", path.read_text(), re.MULTILINE) is not None


def complaints(found: Iterable[Difference], listed: Sequence[Row]) -> Iterator[str]:
    """What is wrong between what differs and what the page lists, both ways, as lines that can be pasted into it."""
    known = {row.difference for row in listed}
    seen = set(found)
    for one in sorted(seen - known):
        yield f"not listed: {line(Row(one, UNEXPLAINED))}"
    for one in sorted(known - seen):
        yield f"listed, and does not occur: {line(Row(one, UNEXPLAINED))}"


def line(row: Row) -> str:
    one = row.difference
    texts = [one.scenario, str(one.step), one.field, one.theirs, one.ours]
    link = row.why if row.why == UNEXPLAINED else f"[{row.why}](#{anchor(row.why)})"
    return "| " + " | ".join([*(text.replace("|", "\\|") for text in texts), link]) + " |"


def anchor(title: str) -> str:
    """The fragment that a heading's link has."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def rewritten(page: str, found: Sequence[Difference]) -> str:
    """The page with the table of what differs now; a row keeps its reason, a new one has none yet."""
    old = {row.difference.place: row.why for row in rows(page)}
    above, _, rest = page.partition(TABLE)
    lines = rest.splitlines()
    end = next((i for i, text in enumerate(lines[2:], 2) if not text.startswith("|")), len(lines))
    made = [line(Row(one, old.get(one.place, UNEXPLAINED))) for one in found]
    return above + "\n".join([TABLE, lines[1], *made, *lines[end:]]) + "\n"
