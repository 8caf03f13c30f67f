"""An API server that takes events, and a recorder that writes to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from ccm_lb.kube.events import Recorder
from ccm_lb.redaction import Secrets
from tests.component.kube.events.world import START, Counts, EventServer


@pytest.fixture
def server() -> EventServer:
    return EventServer()


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
async def recorder(server: EventServer, counts: Counts) -> AsyncIterator[Recorder]:
    loop = asyncio.get_running_loop()
    made = Recorder(server, observer=counts, secrets=Secrets(), now=lambda: START + loop.time())
    made.start()
    yield made
    await made.stop()
