"""Killing the controller at a chosen request, and starting it again as a cluster does."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.faultproxy.downstream import CutConnection
from tests.faultproxy.effects import Act
from tests.faultproxy.exchange import Exchange
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness.controller import Controller

Write = tuple[str, str]


class Killer:
    """Kills the controller at the n-th request to either server, or at the next write of a kind."""

    def __init__(self, controller: Controller, *, applied: bool) -> None:
        self._controller = controller
        self._applied = applied
        self._left = 0
        self._wanted: Write | None = None
        self._at: Exchange | None = None

    def watch_over(self, proxy: FaultProxy) -> None:
        """Count this proxy's requests, its watches apart: they are open before the test begins."""
        proxy.add(Rule(Act(self._count, applied=self._applied), Match(watch=False)))

    def arm(self, nth: int = 1, write: Write | None = None) -> None:
        """Kill at the `nth` request, counting only those that are `write` if one is given."""
        self._left, self._wanted, self._at = nth, write, None

    def disarm(self) -> Exchange | None:
        """Kill no more; the request at which it killed, if it did."""
        self._left = 0
        return self.at()

    def at(self) -> Exchange | None:
        return self._at

    async def _count(self, exchange: Exchange) -> None:
        if self._left == 0 or self._wanted not in (None, write_of(exchange.request.method, exchange.request.path)):
            return
        self._left -= 1
        if self._left == 0:
            self._at = exchange
            await self._controller.kill()
            raise CutConnection(reset=False)  # otherwise it is forwarded after its sender's death


@asynccontextmanager
async def revived(controller: Controller) -> AsyncIterator[None]:
    """Start the controller again whenever it dies, as a cluster does."""

    async def keep() -> None:
        while True:
            if controller.pid is None:
                controller.start()
            await asyncio.sleep(0.02)

    task = asyncio.create_task(keep())
    try:
        yield
    finally:
        task.cancel()


def write_of(method: str, path: str) -> Write:
    """A write without the names in it."""
    path = re.sub(r"/namespaces/[^/]+/(services|events)(/[^/]+)?", lambda m: f"/{m[1]}{'/*' if m[2] else ''}", path)
    return method, re.sub(r"(/v1/load-balancers)/[^/]+", r"\1/*", path)
