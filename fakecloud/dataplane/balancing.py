"""Which targets a new connection tries, in which order."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def round_robin(candidates: Sequence[tuple[T, bool]], turn: int) -> Sequence[T]:
    """
    The usable ones, starting with the one whose turn it is; the rest are tried when that one can't be reached.

    When none is usable, all of them are (fail-open): a health check that is wrong must not take the service down.
    """
    usable = [candidate for candidate, fit in candidates if fit] or [candidate for candidate, _ in candidates]
    start = turn % len(usable) if usable else 0
    return [*usable[start:], *usable[:start]]
