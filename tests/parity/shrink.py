"""A failing sequence made short: pure, but for the question whether what is left still fails."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def shrink(steps: Sequence[T], fails: Callable[[Sequence[T]], Awaitable[bool]], tries: int = 60) -> list[T]:
    """
    The steps without those that the failure does not need, in their order; `fails` is asked at most `tries` times.

    First halves are left out, then quarters, down to single steps; whatever still fails without a piece goes on without it.
    """
    left = list(steps)
    size = max(1, len(left) // 2)
    while size and tries:
        start, changed = 0, False
        while start < len(left) and tries:
            without = left[:start] + left[start + size :]
            tries -= 1
            if await fails(without):
                left, changed = without, True
            else:
                start += size
        if not changed or size > len(left):
            size = min(size // 2, len(left))
    return left
