"""Go's durations, which Kubernetes' configurations are written in: `15m0s`, `1.5h`, `900s`."""

from __future__ import annotations

import re
from decimal import Decimal

_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART = re.compile(r"(?P<number>\d+\.?\d*|\.\d+)(?P<unit>ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"[-+]?(?:{_PART.pattern.replace('?P<number>', '?:').replace('?P<unit>', '?:')})+", re.ASCII)
_LARGEST = 2**63 - 1


def parse(text: str) -> int | None:
    """Nanoseconds, as Go's time.ParseDuration reads them; None for what it refuses."""
    if text in ("0", "+0", "-0"):
        return 0
    if not _WHOLE.fullmatch(text):
        return None
    sign = -1 if text.startswith("-") else 1
    total = sum(int(Decimal(part["number"]) * _NANOSECONDS[part["unit"]]) for part in _PART.finditer(text))
    return sign * total if total <= _LARGEST else None


def from_seconds(seconds: int) -> str:
    """`15m0s` for 900: the way in which Go prints whole seconds."""
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}h{minutes}m{left}s" if hours else f"{minutes}m{left}s" if minutes else f"{left}s"
