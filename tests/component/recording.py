"""A real HTTP server on loopback that answers as it was told and remembers what it was asked, and a clock for its clients."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable

from aiohttp import test_utils, web

CUT = web.Response(status=599)
"""The answer that is none: the connection is closed instead."""


class VirtualClock:
    """Sleeping takes no time and is written down."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class RecordingServer:
    """Answers in order, the last answer for ever; while `silent` it does not answer at all."""

    def __init__(self, answer: web.Response) -> None:
        self.answers = [answer]
        self.silent = False
        self.before_answer: Callable[[], None] = lambda: None
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""

    def refusal(self, request: web.Request) -> web.Response | None:
        """What is answered instead of the next answer, which is kept for later."""
        return None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if self.silent:
            await asyncio.Event().wait()
        self.bodies.append(await request.read())
        self.before_answer()
        if (refusal := self.refusal(request)) is not None:
            return refusal
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is CUT:
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


@contextlib.asynccontextmanager
async def serve(server: RecordingServer, context: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Let it be asked at `server.url`, over TLS with a `context`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    listening = test_utils.TestServer(app, scheme="https" if context else "http")
    await listening.start_server(ssl=context)
    server.url = str(listening.make_url("")).rstrip("/")
    try:
        yield
    finally:
        await listening.close()
