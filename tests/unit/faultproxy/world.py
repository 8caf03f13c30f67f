"""A small server that is known to be right, and what tests wait for."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web

WATCH = {"watch": "true"}
IP_MODE = "status.loadBalancer.ingress[].ipMode"


class Upstream:
    """Answers PUT /echo with what it got, GET /item with an object, and a watch with what the test sends."""

    def __init__(self) -> None:
        self.url = ""
        self.taken: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.watchers: list[web.StreamResponse] = []
        self.left = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.taken.append((request.method, request.raw_path, body))
        self.headers.append(dict(request.headers))
        if request.query.get("watch"):
            return await self._watch(request)
        if request.method == "GET":
            return web.json_response({"status": {"loadBalancer": {"ingress": [{"ip": "127.84.0.1", "ipMode": "VIP"}]}}})
        return web.Response(body=body, content_type="application/json", status=201)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        self.watchers.append(response)
        try:
            await asyncio.Event().wait()
        finally:
            self.left += 1
        return response

    async def send(self, *names: str) -> None:
        for name in names:
            await self.watchers[-1].write(json.dumps(event(name)).encode() + b"\n")


def event(name: str, mode: str | None = None) -> dict[str, Any]:
    status = {"loadBalancer": {"ingress": [{"ip": "127.84.0.1", **({"ipMode": mode} if mode else {})}]}}
    return {"type": "MODIFIED", "object": {"metadata": {"name": name}, "status": status}}


@contextlib.asynccontextmanager
async def watching(session: aiohttp.ClientSession, upstream: Upstream) -> AsyncIterator[aiohttp.ClientResponse]:
    before = len(upstream.watchers)
    async with session.get("/api/v1/services", params=WATCH) as answer:
        await reach(lambda: len(upstream.watchers) > before)
        yield answer


async def reach(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.002)


async def names(answer: aiohttp.ClientResponse, count: int) -> list[str]:
    async with asyncio.timeout(30):
        return [json.loads(await answer.content.readline())["object"]["metadata"]["name"] for _ in range(count)]


async def silent(answer: aiohttp.ClientResponse) -> bool:
    """Nothing comes within a moment that is long for a loopback connection; a proxy that leaks would be seen most times."""
    try:
        await asyncio.wait_for(answer.content.readany(), 0.1)
    except TimeoutError:
        return True
    return False
