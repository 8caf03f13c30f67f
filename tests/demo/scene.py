"""The demo's cluster: two nodes, five Services, something behind each node port, and clients that keep asking."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.harness import objects
from tests.harness.backends import fetch
from tests.harness.cloud import targets
from tests.harness.stack import Stack

Json = dict[str, Any]
NODES = ("n1", "n2")
IP_MODE = "ccm-lb.dev/ip-mode"
PROBE_PAUSE = 0.5  # seconds between two requests to the same port


def services() -> list[Json]:
    """What the demo's user would apply: one of each kind, on ports that anybody may bind."""
    return [
        objects.service("vip", {"http": 18080}, annotations={IP_MODE: "VIP"}),
        objects.service("proxy", {"http": 18080}),
        objects.service("two-ports", {"http": 18080, "admin": 18081}),
        objects.service("again", {"http": 18080}),
    ]


@dataclasses.dataclass
class Traffic:
    """Requests to one port of one Service through its load balancer."""

    asked: int = 0
    answered: int = 0
    last: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    service: str
    address: str
    ip_mode: str
    port: int
    targets: str
    health: str
    traffic: Traffic


class Scene:
    """What goes on in the cluster, as seen from outside; `rows` is what the table shows."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.began = time.monotonic()
        self.first_answer: float | None = None  # seconds from the beginning
        self._traffic: dict[tuple[str, int], Traffic] = {}
        self.rows: list[Row] = []

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Answer on node ports, ask through load balancers and look, until left."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._look_on())
            try:
                yield
            finally:
                task.cancel()

    async def set_up(self) -> None:
        """Nodes, Services, and one Service that is deleted and made again."""
        for name in NODES:
            await self._stack.add_node(name)
        for service in services():
            await self._stack.create(service)
        first = await self._stack.wait_served("again")
        await self._stack.delete("again")
        await self._stack.wait("again", lambda now: now is None or now["metadata"]["uid"] != first["metadata"]["uid"])
        await self._stack.create(next(one for one in services() if one["metadata"]["name"] == "again"))

    async def tear_down(self) -> None:
        """Delete every Service; returns when the cloud has no load balancer left. Raises AssertionError, TimeoutError."""
        for service in services():
            await self._stack.delete(service["metadata"]["name"])
        for service in services():
            await self._stack.wait_gone(service["metadata"]["name"])
        await self._stack.wait_unbalanced()

    def complete(self) -> bool:
        """Whether every port of every Service has answered at its address, and every target is known to be healthy."""
        healthy = all(row.health.partition("/")[0] == row.health.partition("/")[2] for row in self.rows)
        wanted = {(one["metadata"]["name"], port["port"]) for one in services() for port in one["spec"]["ports"]}
        return healthy and wanted <= {key for key, traffic in self._traffic.items() if traffic.answered}

    async def _look_on(self) -> None:
        while True:
            everything = await self._stack.kube.list("services", self._stack.namespace)
            found = [one for one in everything if one["spec"]["type"] == "LoadBalancer"]
            balancers = {one["owner"]["uid"]: one for one in await self._stack.cloud.load_balancers()}
            for service in found:
                await self._stack.serve(service, *NODES)
            await asyncio.gather(*(self._probe(service) for service in found if objects.ingress(service)))
            self.rows = [
                row for service in found for row in self._rows(service, balancers.get(service["metadata"]["uid"]))
            ]
            await asyncio.sleep(PROBE_PAUSE)

    async def _probe(self, service: Json) -> None:
        address = objects.ingress(service)[0]["ip"]
        for port in service["spec"]["ports"]:
            traffic = self._traffic.setdefault((service["metadata"]["name"], port["port"]), Traffic())
            traffic.asked += 1
            try:
                traffic.last = await fetch(address, port["port"])
            except (OSError, TimeoutError, ValueError):
                continue
            traffic.answered += 1
            if self.first_answer is None:
                self.first_answer = time.monotonic() - self.began

    def _rows(self, service: Json, balancer: Json | None) -> list[Row]:
        name, entry = service["metadata"]["name"], (objects.ingress(service) or [{}])[0]
        health = [one["healthy"] for one in (balancer or {}).get("status", {}).get("targets", [])]
        return [
            Row(
                service=name,
                address=entry.get("ip", "pending"),
                ip_mode=entry.get("ipMode", ""),
                port=port["port"],
                targets=", ".join(one.rpartition("-")[2] for one in targets(balancer)) if balancer else "",
                health=f"{sum(map(bool, health))}/{len(health)}",
                traffic=self._traffic.get((name, port["port"]), Traffic()),
            )
            for port in service["spec"]["ports"]
        ]
