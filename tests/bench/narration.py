"""What a measurement says while it runs: its steps with a time, and each result as it comes."""

import dataclasses
import json
import time
from collections.abc import Callable
from typing import TextIO

_COLUMNS = "{:<18}{:>9}{:>9}{:>10}  {}"
_PAUSE = 5.0  # seconds between two lines of progress


@dataclasses.dataclass(frozen=True)
class Result:
    """`seconds` from the start to the last address, `cpu_seconds` of the controller, and its peak of resident memory."""

    name: str
    what: str
    services: int
    seconds: float
    cpu_seconds: float
    peak_mib: float


class Narration:
    """Steps to one stream, results to another, so that the latter can be kept."""

    def __init__(
        self, steps: TextIO, results: TextIO, *, as_json: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._steps, self._results, self._as_json, self._clock = steps, results, as_json, clock
        self._began = self._last = clock()
        self._head = not as_json

    def step(self, text: str) -> None:
        """Say what is done now."""
        self._last = self._clock()
        print(f"[{self._last - self._began:7.1f} s] {text}", file=self._steps, flush=True)

    def progress(self, text: str) -> None:
        """Say how far it is, unless something was said a moment ago."""
        if self._clock() - self._last >= _PAUSE:
            self.step(text)

    def result(self, result: Result) -> None:
        """Print one result, below a line of headings if it is the first; as JSON, one object a line."""
        if self._as_json:
            line = json.dumps(dataclasses.asdict(result))
        else:
            numbers = (f"{result.seconds:.1f}", f"{result.cpu_seconds:.1f}", f"{result.peak_mib:.0f}")
            line = _COLUMNS.format(result.name, *numbers, result.what)
        if self._head:
            print(_COLUMNS.format("contestant", "time s", "CPU s", "peak MiB", ""), file=self._results)
            self._head = False
        print(line, file=self._results, flush=True)
