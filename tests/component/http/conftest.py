"""A transport between a cloud that answers as it is told and a Lease that a test takes away."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from ccm_lb.http import transport
from ccm_lb.redaction import Secrets
from tests.component.http.world import Cloud, Fence, World
from tests.component.recording import VirtualClock, serve


@pytest.fixture
async def world() -> AsyncIterator[World]:
    cloud, fence, virtual = Cloud(), Fence(), VirtualClock()
    metrics: list[tuple[str, str]] = []
    sut = transport.CloudTransport(
        fence, virtual, secrets=Secrets(), observer=lambda method, code, _: metrics.append((method, code))
    )
    async with serve(cloud):
        await sut.open()
        yield World(cloud, fence, virtual, sut, metrics)
        await sut.close()
