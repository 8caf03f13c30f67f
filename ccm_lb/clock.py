"""The clock that the controller runs on; tests hand in their own."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """
    The machine's time (a `backends.base.Clock`).

    Where the system has it (Linux), `monotonic` is CLOCK_BOOTTIME: it goes on while the machine sleeps, so that a Lease which ran
    out meanwhile is seen as lost on waking.
    """

    def monotonic(self) -> float:
        """Seconds that never jump back; only differences mean anything."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
