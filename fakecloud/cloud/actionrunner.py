"""Actions that take their time: each waits, runs and ends in a task of its own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from fakecloud.cloud.intents import ActionOrder
from fakecloud.cloud.store import StoreError

logger = logging.getLogger(__name__)
_ORDER_CHECK = 0.02


class ActionRunner:
    """`seconds` is how long each action takes; a fault may order that it waits longer, or how it ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._working: set[asyncio.Task[None]] = set()

    def is_immediate(self, order: ActionOrder | None) -> bool:
        """Whether an action is over before its request is answered."""
        return order is None and self._seconds == 0

    def start(
        self,
        order: ActionOrder | None,
        run: Callable[[], Awaitable[None]],
        end: Callable[[str | None], Awaitable[None]],
    ) -> None:
        """A quarter of the time the action waits, then it runs; `end` is told the error that a fault has ordered."""
        task = asyncio.create_task(self._carry_out(order, run, end))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def close(self) -> None:
        """End what is under way; the next start of the process carries it out."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def _carry_out(
        self,
        order: ActionOrder | None,
        run: Callable[[], Awaitable[None]],
        end: Callable[[str | None], Awaitable[None]],
    ) -> None:
        while order is not None and order.error is None and order.holds():  # noqa: ASYNC110 - faults do not tell
            await asyncio.sleep(_ORDER_CHECK)
        try:
            await asyncio.sleep(self._seconds / 4)
            await run()
            await asyncio.sleep(self._seconds * 3 / 4)
            await end(None if order is None else order.error)
        except StoreError:
            logger.exception("an action could not be stored; the next start carries it out")
