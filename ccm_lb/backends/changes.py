"""
Whether a call of a backend changed something in the cloud.

The transport notes every request that may change something and was accepted. A backend that talks through a vendor's SDK calls `note`
itself after each such call.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

__all__ = ["note"]


class Changes:
    """What was noted inside one block."""

    def __init__(self) -> None:
        self.any = False


# A context's own: calls for different Services run at the same time.
_noted: contextvars.ContextVar[Changes | None] = contextvars.ContextVar("changes", default=None)


@contextlib.contextmanager
def noted() -> Iterator[Changes]:
    """Take note of what is changed inside the block, by the tasks that it begins as well; a block around it notes it, too."""
    changes, around = Changes(), _noted.get()
    token = _noted.set(changes)
    try:
        yield changes
    finally:
        _noted.reset(token)
        if around is not None:
            around.any = around.any or changes.any


def note() -> None:
    """The cloud has just been changed, or may have been; nothing happens outside of `noted`."""
    changes = _noted.get()
    if changes is not None:
        changes.any = True
