"""Writes one answer to the client, with the faults that concern its bytes and its events."""

import asyncio
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import Literal

from aiohttp import web

from tests.faultproxy import bodies
from tests.faultproxy.effects import (
    Cut,
    Effect,
    Stall,
)
from tests.faultproxy.exchange import Exchange
from tests.faultproxy.stages import EndOfStream, Stage, stages_of


class CutConnection(Exception):  # noqa: N818 -- an order, not an error
    """The client's connection is to be closed."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__("cut")
        self.reset = reset


class Downstream:
    """
    The client's side of one exchange.

    A watch is written in whole events, each as soon as it is complete, so that a test can put an event between two of them;
    everything else is written as it comes.
    """

    def __init__(self, request: web.BaseRequest, exchange: Exchange, effects: Sequence[Effect]) -> None:
        self._request = request
        self._exchange = exchange
        self._response: web.StreamResponse | None = None
        self._limit, self._at_limit = _byte_limit(effects)
        self._stages = [stage for effect in effects for stage in stages_of(effect)] if exchange.request.is_watch else []
        self._rest = b""
        self._flushes: set[asyncio.Task[None]] = set()
        exchange.flowing.set()
        exchange.answer = self

    async def start(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the head, unless a stall holds it."""
        if self._at_limit == "stall" and self._limit is None:
            self._stall()
        await self._exchange.flowing.wait()
        self._response = web.StreamResponse(status=status)
        for name, value in headers:
            self._response.headers.add(name, value)
        await self._response.prepare(self._request)
        self._exchange.status = status
        if self._stages or self._exchange.request.is_watch:
            await self._pass_events([])  # an error that comes before the first event
        await self._reach_limit()

    async def write(self, chunk: bytes) -> None:
        """Pass on a piece of the body."""
        if not self._exchange.request.is_watch:
            await self._send(chunk)
            return
        lines, self._rest = bodies.split_lines(self._rest, chunk)
        if lines:
            await self._pass_events(lines)

    async def end(self) -> web.StreamResponse:
        """The server's answer is complete: so is ours, once what is held has gone out."""
        assert self._response is not None
        if self._flushes:
            await asyncio.gather(*self._flushes)
        await self._send(self._rest)
        await self._exchange.flowing.wait()
        await self._response.write_eof()
        self._exchange.outcome = "passed"
        return self._response

    async def inject(self, line: bytes, *, end: bool) -> None:
        """OpenAnswer: write a line now; it does not count as an event of the server's."""
        assert self._response is not None
        await self._send(line)
        if end:
            await self._response.write_eof()
            self._exchange.outcome = "passed"
            if self._request.transport is not None:
                self._request.transport.close()

    def close(self, *, reset: bool) -> None:
        """OpenAnswer: end the connection now."""
        self._exchange.outcome = "cut"
        close_connection(self._request, reset=reset)

    def drop(self) -> None:
        """Forget what is still held."""
        for flush in self._flushes:
            flush.cancel()

    async def _pass_events(self, lines: list[bytes]) -> None:
        ended: EndOfStream | None = None
        for stage in self._stages:
            try:
                lines = stage.feed(lines)
            except EndOfStream as end:
                lines, ended = end.last, end
        for line in lines:
            await self._send(line)
        for stage in self._stages:
            if stage.held and stage.flush is None:
                stage.flush = asyncio.create_task(self._flush(stage))
                self._flushes.add(stage.flush)
                stage.flush.add_done_callback(self._flushes.discard)
        if ended is not None:
            raise ended

    async def _flush(self, stage: Stage) -> None:
        await stage.due()
        try:
            while stage.held:
                await self._send(stage.held[0])
                stage.held.pop(0)  # only now: what comes meanwhile must queue behind it
        except CutConnection as cut:
            self.close(reset=cut.reset)
        except OSError:
            self.close(reset=False)  # the client is gone
        stage.flush = None

    async def _send(self, data: bytes) -> None:
        assert self._response is not None
        while data:
            await self._exchange.flowing.wait()
            room = len(data) if self._limit is None else self._limit - self._exchange.passed_bytes
            part, data = data[:room], data[room:]
            await self._response.write(part)
            self._exchange.passed_bytes += len(part)
            await self._reach_limit()

    async def _reach_limit(self) -> None:
        if self._limit is None or self._exchange.passed_bytes < self._limit:
            return
        if self._at_limit == "stall":
            self._limit = None  # after a resume everything flows
            self._stall()
        else:
            raise CutConnection(reset=self._at_limit == "reset")

    def _stall(self) -> None:
        self._exchange.flowing.clear()


def _byte_limit(effects: Sequence[Effect]) -> tuple[int | None, Literal["none", "stall", "close", "reset"]]:
    for effect in effects:
        match effect:
            case Stall():
                return effect.after_bytes, "stall"
            case Cut(after_bytes=int()):
                return effect.after_bytes, "reset" if effect.reset else "close"
            case _:
                continue
    return None, "none"


def close_connection(request: web.BaseRequest, *, reset: bool) -> None:
    """Close the client's connection without another byte."""
    transport = request.transport
    if transport is None:
        return
    if reset:
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
