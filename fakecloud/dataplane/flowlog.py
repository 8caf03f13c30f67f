"""The connections that have ended: the newest in memory, and all of them in a file when one is given."""

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple, TextIO

from fakecloud.models.flows import Ending, Flow
from fakecloud.models.listeners import Protocol

logger = logging.getLogger(__name__)


class Ended(NamedTuple):
    """A flow as the data plane knows it, cheap to make; addresses are (address, port)."""

    load_balancer: str
    protocol: Protocol
    listener: tuple[str, int]
    client: tuple[str, int]
    target: tuple[str, int] | None
    ending: Ending
    bytes_in: int
    bytes_out: int
    seconds: float


class FlowLog:
    """
    `clock` is the time in seconds since 1970; it becomes text only for readers.

    A file that can't be written, say on a full disk, loses lines and nothing else.
    """

    def __init__(self, size: int, clock: Callable[[], float], file: TextIO | None = None) -> None:
        self._ended: deque[tuple[float, Ended]] = deque(maxlen=size)
        self._clock = clock
        self._file = file
        self._failing = False

    def add(self, ended: Ended) -> None:
        at = self._clock()
        self._ended.append((at, ended))
        if self._file is not None:
            try:
                self._file.write(_flow(at, ended).model_dump_json(by_alias=True) + "\n")
            except OSError as error:
                self._failed(error)

    def select(self, load_balancer: str | None, limit: int) -> Iterator[Flow]:
        """Newest first."""
        matching = (one for one in reversed(self._ended) if load_balancer in (None, one[1].load_balancer))
        return (_flow(at, ended) for (at, ended), _ in zip(matching, range(limit), strict=False))

    def clear(self) -> None:
        self._ended.clear()

    def flush(self) -> None:
        """Let readers of the file see what was written."""
        if self._file is not None:
            try:
                self._file.flush()
                self._failing = False
            except OSError as error:
                self._failed(error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self.flush()
            with contextlib.suppress(OSError):
                self._file.close()

    def _failed(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            logger.warning("the flow log loses lines", extra={"reason": error.strerror})


def _flow(at: float, ended: Ended) -> Flow:
    return Flow(
        at=datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        load_balancer=ended.load_balancer,
        protocol=ended.protocol,
        listener=_text(ended.listener),
        client=_text(ended.client),
        target=None if ended.target is None else _text(ended.target),
        ending=ended.ending,
        bytes_in=ended.bytes_in,
        bytes_out=ended.bytes_out,
        seconds=round(ended.seconds, 6),
    )


def _text(endpoint: tuple[str, int]) -> str:
    address, port = endpoint
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
