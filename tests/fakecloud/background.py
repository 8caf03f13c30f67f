"""A fakecloud in a thread of its own, for tools that call it synchronously."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import uvloop

from fakecloud import app
from fakecloud.config import Settings


@contextlib.contextmanager
def in_background(settings: Settings) -> Iterator[str]:
    """Its URL."""
    ready: list[str] = []
    started = threading.Event()
    loop = uvloop.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with app.running(settings) as serving:
            ready.append(serving.url)
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=run, name="fakecloud")
    thread.start()
    started.wait()
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
