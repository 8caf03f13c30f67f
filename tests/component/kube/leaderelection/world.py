"""A Lease server in memory, and replicas with a clock, a way to the API and a gate of their own."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ccm_lb.errors import ApiUnreachableError, ConflictError, ForbiddenError, InvalidError, NotFoundError
from ccm_lb.kube.leaderelection import LeaseElector, Timing

PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm"
EXACT = Timing(poll_jitter=0.0)
Fault = Literal["none", "refused", "reply lost", "hangs", "forbidden", "invalid"]


async def at(seconds: float) -> None:
    await asyncio.sleep(seconds - asyncio.get_running_loop().time())


def now() -> float:
    return asyncio.get_running_loop().time()


def conflict() -> ConflictError:
    return ConflictError("it changed", status=409, reason="Conflict")


class LeaseServer:
    """One Lease behind optimistic concurrency, as the API server keeps it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self._versions = itertools.count(1)

    def get(self) -> dict[str, Any]:
        if self.lease is None:
            raise NotFoundError("no such Lease", status=404, reason="NotFound")
        return copy.deepcopy(self.lease)

    def post(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.lease is not None:
            raise conflict()
        version = next(self._versions)
        self.lease = {**body, "metadata": {**body["metadata"], "uid": f"uid-{version}", "resourceVersion": version}}
        return copy.deepcopy(self.lease)

    def put(self, body: Mapping[str, Any]) -> dict[str, Any]:
        current = self.get()["metadata"]
        if current["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise conflict()
        if body["spec"]["leaseDurationSeconds"] < 1:
            raise ForbiddenError("leaseDurationSeconds: must be greater than 0", status=422)
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": next(self._versions)}}
        return copy.deepcopy(self.lease)

    @property
    def spec(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.get()["spec"]
        return spec


class Replica:
    """A process: its clock, its way to the API, and a gate that stands for SIGSTOP and SIGCONT."""

    def __init__(self, server: LeaseServer, identity: str, timing: Timing = EXACT) -> None:
        self.server, self.fault, self.latency = server, "none", 0.0
        self.calls: list[tuple[float, str]] = []
        self.before_sleep: Callable[[], None] = lambda: None
        self.running = asyncio.Event()
        self.running.set()
        self.wall = dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC)
        self.elector = LeaseElector(
            self, self, identity, "kube-system", "ccm", timing, lambda: self.wall + dt.timedelta(seconds=now())
        )

    def monotonic(self) -> float:
        return now()

    async def sleep(self, seconds: float) -> None:
        self.before_sleep()
        await asyncio.sleep(seconds)
        await self.running.wait()

    async def get(self, path: str) -> dict[str, Any]:
        assert path == PATH
        return await self._call("get", None)

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path == PATH.rpartition("/")[0]
        return await self._call("post", body)

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path == PATH
        return await self._call("put", body)

    async def _call(self, verb: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        self.calls.append((now(), verb))
        fault: str = self.fault
        try:
            await asyncio.sleep(self.latency)
            if fault == "refused":
                raise ApiUnreachableError("connection refused")
            if fault == "forbidden":
                raise ForbiddenError("may not", status=403, reason="Forbidden")
            if fault == "invalid":
                raise InvalidError("must not", status=422, reason="Invalid")
            if fault == "hangs":
                await asyncio.Event().wait()
            answer: dict[str, Any] = getattr(self.server, verb)(*([] if body is None else [copy.deepcopy(body)]))
            await asyncio.sleep(self.latency)
            if fault == "reply lost":
                raise ApiUnreachableError("connection reset")
            return answer
        finally:
            await self.running.wait()


async def holding(replica: Replica) -> asyncio.Task[None]:
    await replica.elector.acquire()
    return asyncio.create_task(replica.elector.hold())


async def kill(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
