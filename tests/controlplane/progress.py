"""How far a build is: an estimate, and lines for a terminal or a log."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

# Weight of the estimate known beforehand, as the share of a whole build that it counts for; it steadies the first minute,
# when few packages are done and some of them are the largest.
_PRIOR_WEIGHT = 0.15


def seconds_left(elapsed: float, fraction: float, expected: float) -> float:
    """Seconds until done, after `elapsed` seconds with `fraction` (0 to 1) done, when `expected` seconds were foreseen."""
    fraction = min(max(fraction, 0.0), 1.0)
    whole = (expected * _PRIOR_WEIGHT + elapsed) / (_PRIOR_WEIGHT + fraction)
    return whole * (1.0 - fraction)


def clock_text(seconds: float) -> str:
    """Seconds as `m:ss`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


class Progress:
    """Writes what happens now: one line rewritten in place on a terminal, a line every 15 s elsewhere."""

    def __init__(self, stream: TextIO = sys.stderr, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._interactive = stream.isatty()
        self._pause = 0.5 if self._interactive else 15.0
        self._last = clock() - (self._pause if self._interactive else self._pause - 3.0)
        self._open = False

    def update(self, text: str) -> None:
        """Show `text` unless something was shown a moment ago."""
        now = self._clock()
        if now - self._last < self._pause:
            return
        self._last = now
        if self._interactive:
            self._stream.write(f"\r\033[K{text}")
            self._open = True
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def line(self, text: str) -> None:
        """Show `text` for good."""
        if self._open:
            self._stream.write("\r\033[K")
            self._open = False
        self._stream.write(f"{text}\n")
        self._stream.flush()
