"""fakecloud and its backend in one process, over real HTTP."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

from ccm_lb.backends.base import BackendContext, Response
from ccm_lb.backends.fakecloud import FakecloudBackend, FakecloudConfig
from ccm_lb.clock import SystemClock
from ccm_lb.http.transport import CloudTransport
from ccm_lb.objects import Node
from ccm_lb.redaction import Secrets
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import OpenFence, RecordedEvents
from fakecloud import app
from fakecloud.config import Settings
from tests.fakecloud.clients import free_pool

SERVICE = builders.service(builders.port(18080))


class RecordingTransport(CloudTransport):
    """The real one, with a list of what went out."""

    def __init__(self) -> None:
        super().__init__(OpenFence("lease-uid:7"), SystemClock(), secrets=Secrets())
        self.sent: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.delivery: str | None = None  # what the cloud says of it, in place of the truth

    async def request(self, method: str, url: str, **options: Any) -> Response:
        self.sent.append((method, options.get("body")))
        self.headers.append(dict(options.get("headers") or {}))
        response = await super().request(method, url, **options)
        if self.delivery is not None and url.endswith("/v1/cloud"):
            told = json.dumps({**response.json(), "delivery": self.delivery}).encode()
            return dataclasses.replace(response, body=told)
        return response

    def writes(self) -> list[tuple[str, Any]]:
        return [(method, body) for method, body in self.sent if method != "GET"]


class World(NamedTuple):
    serving: app.Serving
    transport: RecordingTransport
    events: RecordedEvents
    make: Callable[[FakecloudConfig], FakecloudBackend]
    backend: FakecloudBackend  # opened, and what it sent for that is forgotten


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[World]:
    settings = Settings(port=0, token="secret", pools=(free_pool(random.Random()),))
    transport, events = RecordingTransport(), RecordedEvents()
    await transport.open()

    def make(config: FakecloudConfig) -> FakecloudBackend:
        return FakecloudBackend(BackendContext("c1", config, transport, SystemClock(), events, Secrets()))

    async with app.running(settings) as serving:
        backend = make(FakecloudConfig(url=serving.url, token="secret"))
        await backend.open()
        transport.sent.clear()
        transport.headers.clear()
        yield World(serving, transport, events, make, backend)
    await transport.close()


def nodes(*numbers: int) -> tuple[Node, ...]:
    return tuple(builders.node(f"n{i}", builders.addresses(f"127.0.0.{10 + i}")) for i in numbers)


async def stored(world: World) -> Any:
    [load_balancer] = world.serving.cloud.state.load_balancers.values()
    return load_balancer.spec
