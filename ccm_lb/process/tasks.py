"""Small things to do with tasks: end them, end them early, try again until it works."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from ccm_lb.controller.serviceevents import words
from ccm_lb.errors import ConfigError

logger = logging.getLogger(__name__)

_PAUSES = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)  # seconds between attempts to get ready

T = TypeVar("T")


async def unless(stopping: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None if `stopping` comes first, which ends it."""
    task, stop = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        await end(task, stop)


async def end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def persist(waiting: dict[str, str], name: str, attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of `attempt`, repeated with growing pauses; `waiting[name]` says why meanwhile. Raises ConfigError."""
    for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
        try:
            return await attempt()
        except ConfigError:
            raise
        except Exception as error:
            waiting[name] = words(error)
            logger.warning("not ready, will be retried", exc_info=error, extra={"check": name, "pause": pause})
            await asyncio.sleep(pause)
    raise AssertionError("the pauses never end")


def pending(waiting: Mapping[str, str], name: str) -> Callable[[], str | None]:
    return lambda: waiting.get(name)
