"""The pages as data: fenced blocks, headings, links. Reads files, runs nothing."""

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>.*)$")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?) *#*$")
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block. The info string is a language and, for a block that is a file, its name: ```yaml web.yaml."""

    page: str
    line: int
    language: str
    file: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclasses.dataclass(frozen=True)
class Page:
    """One Markdown file, by its path from the repository's root."""

    name: str
    blocks: tuple[Block, ...]
    anchors: frozenset[str]
    links: tuple[tuple[int, str], ...]
    prose: str

    def blocks_of(self, *languages: str) -> list[Block]:
        return [block for block in self.blocks if block.language in languages]


def names() -> list[str]:
    """The pages at the top and everything under docs/."""
    found = [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    return [str(path.relative_to(ROOT)) for path in found]


def read(name: str) -> Page:
    return parse(name, (ROOT / name).read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Page:
    """Raises ValueError for a fence that is never closed."""
    blocks: list[Block] = []
    prose: list[str] = []
    lines = enumerate(text.splitlines(), start=1)
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            prose.append(line)
            continue
        prose.append("")
        language, _, file = fence["info"].strip().partition(" ")
        content = list(_until_closed(lines, fence["indent"], f"{name}:{number}"))
        prose += [""] * (len(content) + 1)
        blocks.append(Block(name, number, language, file.strip() or None, "\n".join(content) + "\n"))
    headings = [found["text"] for line in prose if (found := _HEADING.match(line))]
    whole = "\n".join(prose)  # a link's text may go over the end of a line
    links = [(whole.count("\n", 0, found.end()) + 1, found["target"]) for found in _LINK.finditer(whole)]
    return Page(name, tuple(blocks), frozenset(_anchors(headings)), tuple(links), whole)


def _until_closed(lines: Iterator[tuple[int, str]], indent: str, where: str) -> Iterator[str]:
    for _, line in lines:
        if line.strip() == "```":
            return
        yield line.removeprefix(indent)
    raise ValueError(f"{where}: this block is never closed")


def _anchors(headings: list[str]) -> Iterator[str]:
    """The names that GitHub gives headings; a repeated one gets a number."""
    seen: dict[str, int] = {}
    for heading in headings:
        kept = re.sub(r"[^\w\- ]", "", re.sub(r"`|\*", "", heading).strip().lower())
        anchor = kept.replace(" ", "-")
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        yield f"{anchor}-{count}" if count else anchor


def table(prose: str, heading: str) -> list[list[str]]:
    """The cells of the first table under that heading, without its head."""
    _, found, rest = prose.partition(f"# {heading}\n")
    if not found:
        raise ValueError(f"no heading {heading!r}")
    section = re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip().strip("|").split("|") for line in section.splitlines() if line.lstrip().startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]
