"""An API server that answers as it is told, and a clock that costs no time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.component.kube.world import ApiServer
from tests.component.recording import VirtualClock, serve


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    async with serve(server):
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()
