"""Clients that never stop: each connection to each address, and how many of them failed."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence

from tests.harness.backends import fetch


@dataclasses.dataclass
class Traffic:
    """Grows while it runs."""

    answered: int = 0
    failures: list[str] = dataclasses.field(default_factory=list)


@contextlib.asynccontextmanager
async def going_on(addresses: Sequence[tuple[str, int]], pause: float = 0.1) -> AsyncIterator[Traffic]:
    """A client for each (address, port), which opens a connection, waits for the answer and `pause` seconds, again and again."""
    traffic = Traffic()

    async def client(address: str, port: int) -> None:
        while True:
            try:
                await fetch(address, port, timeout=20.0)
                traffic.answered += 1
            except (OSError, ValueError, TimeoutError) as error:
                traffic.failures.append(f"{address}:{port}: {error!r}")
            await asyncio.sleep(pause)

    async with asyncio.TaskGroup() as group:
        clients = [group.create_task(client(*one)) for one in addresses]
        yield traffic
        for one in clients:
            one.cancel()
