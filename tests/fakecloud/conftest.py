import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator

import aiohttp
import pytest
import uvloop

from fakecloud import app
from fakecloud.config import Settings
from fakecloud.state.ipam import Network
from tests.fakecloud.clients import Api, Backends, Process, free_pool
from tests.fakecloud.enclosed import Servers


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that `fakecloud serve` runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture
def pool() -> Network:
    """A network of its own for each test, so that two runs on one machine don't meet."""
    return free_pool(random.Random())


@pytest.fixture
def settings(pool: Network) -> Settings:
    return Settings(port=0, token="secret", pools=(pool,))


@pytest.fixture
async def serving(settings: Settings) -> AsyncIterator[app.Serving]:
    async with app.running(settings) as serving:
        yield serving


@pytest.fixture
async def api(serving: app.Serving) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as session:
        yield Api(session, serving.url, "secret")


@pytest.fixture
async def backends() -> AsyncIterator[Backends]:
    backends = Backends()
    yield backends
    await backends.close()


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process()
    yield process
    process.kill()


@pytest.fixture
def servers() -> Iterator[Servers]:
    servers = Servers()
    yield servers
    servers.stop()
