"""A fault proxy between a client and a small server that is known to be right."""

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from tests.faultproxy import (
    FaultProxy,
)
from tests.unit.faultproxy.world import Upstream


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    server = Upstream()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.05, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield server
    await runner.cleanup()


@pytest.fixture
async def proxy(upstream: Upstream) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(upstream.url) as served:
        yield served


@pytest.fixture
async def session(proxy: FaultProxy) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(proxy.url, connector=aiohttp.TCPConnector(force_close=True)) as client:
        yield client
