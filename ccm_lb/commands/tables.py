"""Tables for terminals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"))


def aligned(rows: Sequence[Sequence[str]], limits: Sequence[int] = ()) -> Iterable[str]:
    """The rows as lines, each column as wide as its widest cell; with `limits`, one a column, longer cells are cut to them."""
    shown = [list(map(cut, row, limits)) if limits else list(row) for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    for row in shown:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, the last of which says that there are more."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def duration(seconds: float) -> str:
    """As kubectl shows an age: 45s, 12m, 3h, 9d."""
    for size, unit in _UNITS:
        if seconds >= size * 2:
            return f"{seconds // size:.0f}{unit}"
    return f"{seconds:.0f}s"
