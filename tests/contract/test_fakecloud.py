"""The backend for fakecloud keeps the provider's contract, over HTTP, against the real server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence

import pytest

from ccm_lb.backends.base import Transport
from ccm_lb.backends.fakecloud import FakecloudBackend, FakecloudConfig
from ccm_lb.clock import SystemClock
from ccm_lb.http.transport import CloudTransport
from ccm_lb.objects import Node, Service
from ccm_lb.redaction import Secrets
from ccm_lb.testing import builders
from ccm_lb.testing.conformance import LoadBalancerConformance
from ccm_lb.testing.fakes import OpenFence
from fakecloud import app
from fakecloud.config import Settings
from fakecloud.models.inventory import Server
from tests.contract.inspectors import FakecloudInspector
from tests.fakecloud.clients import free_pool


@pytest.fixture
async def serving() -> AsyncIterator[app.Serving]:
    settings = Settings(port=0, token="secret", pools=(free_pool(random.Random()),))
    async with app.running(settings) as serving:
        yield serving


class TestFakecloud(LoadBalancerConformance):
    backend_class = FakecloudBackend

    @pytest.fixture
    def config(self, serving: app.Serving) -> FakecloudConfig:
        return FakecloudConfig(url=serving.url, token="secret")

    @pytest.fixture
    def inspector(self, serving: app.Serving) -> FakecloudInspector:
        return FakecloudInspector(serving.cloud)

    @pytest.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        transport = CloudTransport(OpenFence("lease:1"), SystemClock(), secrets=Secrets())
        await transport.open()
        yield transport
        await transport.close()

    @pytest.fixture
    def service(self) -> Service:
        return builders.service(builders.port(18080))  # a port that any user may bind

    @pytest.fixture
    def nodes(self) -> Sequence[Node]:
        # Loopback, because fakecloud probes its targets.
        return tuple(builders.node(f"n{i}", builders.addresses(f"127.0.0.{10 + i}")) for i in range(1, 5))


class TestFakecloudWithServers(TestFakecloud):
    """The same, with nodes that fakecloud knows as its own machines."""

    @pytest.fixture
    async def nodes(self, serving: app.Serving) -> Sequence[Node]:
        for i in range(1, 5):
            await serving.cloud.add_server(Server(id=f"n{i}", name=f"n{i}", addresses=(f"127.0.0.{10 + i}",)))
        return tuple(builders.node(f"n{i}", {"spec": {"providerID": f"fakecloud://n{i}"}}) for i in range(1, 5))
