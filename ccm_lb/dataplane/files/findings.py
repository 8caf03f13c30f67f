"""What is wrong with a file, said so that it can be put right: where, which key, which value, what is allowed."""

from __future__ import annotations

import dataclasses
import difflib
import enum
from collections.abc import Iterable, Sequence
from typing import Any


class Severity(enum.StrEnum):
    ERROR = "error"  # would be refused, or cannot work
    WARNING = "warning"  # would be taken, and does not do what it says
    ADVICE = "advice"  # works; this should be known before


@dataclasses.dataclass(frozen=True)
class Finding:
    """`file:line: severity: key: what`; the line counts from 1, None where there is none to name."""

    severity: Severity
    file: str
    line: int | None
    key: str
    message: str
    value: str | None = None
    allowed: str = ""
    nearest: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        key = f"{self.key}: " if self.key else ""
        given = f"{self.value}: " if self.value is not None else ""
        allowed = f"; expected {self.allowed}" if self.allowed else ""
        nearest = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{where}: {self.severity}: {key}{given}{self.message}{allowed}{nearest}"

    def as_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "severity": self.severity.value}


def nearest(key: str, known: Iterable[str]) -> str:
    """The known key that `key` was meant to be, empty if none is near. Another case is as near as can be."""
    by_case = {one.lower(): one for one in known}
    found = difflib.get_close_matches(key.lower(), list(by_case), n=1, cutoff=0.6)
    return by_case[found[0]] if found else ""


def failing(findings: Sequence[Finding]) -> bool:
    """Whether there is more than advice."""
    return any(one.severity is not Severity.ADVICE for one in findings)


def refused(findings: Sequence[Finding]) -> bool:
    """Whether the file would be refused or cannot work."""
    return any(one.severity is Severity.ERROR for one in findings)
