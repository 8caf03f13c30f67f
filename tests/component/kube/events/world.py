"""An API server that takes events, in memory, and what tests ask of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ccm_lb.errors import (
    ApiError,
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    UnauthorizedError,
)
from ccm_lb.objects import Service, parse_service

START = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def service(name: str = "web", namespace: str = "default", uid: str = "") -> Service:
    meta = {"name": name, "namespace": namespace, "uid": uid or f"uid-{namespace}-{name}", "resourceVersion": "7"}
    return parse_service({"apiVersion": "v1", "kind": "Service", "metadata": meta})


class EventServer:
    """Events by namespace and name, and what goes wrong in which namespace."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[tuple[float, str, str]] = []  # when, method, namespace
        self.faults: dict[str, Callable[[], BaseException]] = {}
        self.latency: dict[str, float] = {}
        self.latencies: list[float] = []  # of the next requests, one after the other
        self.lose_next_reply = False
        self.under_way = 0
        self.most_under_way = 0

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        namespace = path.split("/")[4]
        assert path == f"/api/v1/namespaces/{namespace}/events"
        await self._receive("POST", namespace)
        key = (namespace, body["metadata"]["name"])
        if key in self.objects:
            raise ConflictError("exists", status=409)
        self.objects[key] = dict(body)
        self._reply()

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        _, _, _, _, namespace, _, name = path.split("/")
        await self._receive("PATCH", namespace)
        if (namespace, name) not in self.objects:
            raise NotFoundError("no such event", status=404)
        self.objects[namespace, name].update(body)
        self._reply()

    async def _receive(self, method: str, namespace: str) -> None:
        self.calls.append((asyncio.get_running_loop().time(), method, namespace))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.latencies.pop(0) if self.latencies else self.latency.get(namespace, 0.01))
        finally:
            self.under_way -= 1
        if namespace in self.faults:
            raise self.faults[namespace]()

    def _reply(self) -> None:
        if self.lose_next_reply:
            self.lose_next_reply = False
            raise ApiUnreachableError("connection reset")

    def messages(self, namespace: str = "default") -> list[tuple[str, int]]:
        return [(one["message"], one["count"]) for (where, _), one in self.objects.items() if where == namespace]

    def methods(self, namespace: str = "default") -> list[str]:
        return [method for _, method, where in self.calls if where == namespace]


class Counts:
    def __init__(self) -> None:
        self.posted = 0
        self.dropped: Counter[str] = Counter()

    def event_posted(self) -> None:
        self.posted += 1

    def event_dropped(self, reason: str, n: int = 1) -> None:
        self.dropped[reason] += n


def unreachable() -> ApiUnreachableError:
    return ApiUnreachableError("connection refused")


def terminating() -> ForbiddenError:
    return ForbiddenError("unable to create new content because it is being terminated", status=403)


FAILURES = [
    pytest.param(unreachable, id="unreachable"),
    pytest.param(lambda: ApiError("broken webhook", status=500), id="500"),
    pytest.param(lambda: ApiError("too many requests", status=429), id="429"),
    pytest.param(lambda: UnauthorizedError("token expired", status=401), id="401"),
]
