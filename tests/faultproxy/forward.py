"""How a request goes to the server and its answer back, and what is done to it on both sides."""

import asyncio
from collections.abc import Iterable, Sequence

import aiohttp
from aiohttp import web
from yarl import URL

from tests.faultproxy import bodies
from tests.faultproxy.downstream import CutConnection, Downstream
from tests.faultproxy.effects import Act, Answer, Cut, Delay, DropField, Effect, Page
from tests.faultproxy.exchange import Exchange
from tests.faultproxy.stages import EndOfStream

# Hop-by-hop, and what depends on the length or coding that we may change. Without Accept-Encoding the server compresses nothing.
_NOT_FORWARDED = frozenset(
    {
        "connection",
        "keep-alive",
        "transfer-encoding",
        "te",
        "trailer",
        "upgrade",
        "host",
        "content-length",
        "accept-encoding",
    }
)
_NOT_PASSED_ON = frozenset({"connection", "keep-alive", "transfer-encoding", "trailer"})


async def play(
    session: aiohttp.ClientSession, server: str, request: web.Request, exchange: Exchange, effects: Sequence[Effect]
) -> web.StreamResponse:
    """
    Take one request to `server` and its answer back, with `effects`.

    Raises:
        CutConnection: the client's connection is to be closed.
        aiohttp.ClientError, OSError: one of the two sides is gone.
    """
    answer = await _side(exchange, effects, applied=False)
    if answer is not None:
        return answer
    body = exchange.body
    for effect in effects:
        if isinstance(effect, DropField) and effect.of == "request":
            body = bodies.without_field(body, effect.path)
    url = URL(server + request.raw_path, encoded=True)
    headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _NOT_FORWARDED]
    exchange.forwarded = True
    async with session.request(
        request.method, url, headers=headers, data=body or None, allow_redirects=False
    ) as upstream:
        exchange.upstream_status = upstream.status
        whole = None
        if not exchange.request.is_watch and _has_applied(effects):
            whole = [await upstream.read()]  # the work is done when the answer is complete
        answer = await _side(exchange, effects, applied=True)
        if answer is not None:
            return answer
        return await _pass_on(request, exchange, effects, upstream, whole)


async def _side(exchange: Exchange, effects: Iterable[Effect], *, applied: bool) -> web.Response | None:
    """Play what happens on one side of the server, in order; an answer of ours ends it."""
    for effect in effects:
        match effect:
            case Delay() if effect.applied is applied:
                await asyncio.sleep(effect.seconds)
            case Act() if effect.applied is applied:
                await effect.call(exchange)
                if not effect.pass_on:
                    raise CutConnection
            case Cut(after_bytes=None) if effect.applied is applied:
                raise CutConnection(reset=effect.reset)
            case Answer() if effect.applied is applied:
                exchange.status, exchange.outcome = effect.status, "answered"
                content = bodies.status_object(effect.status, effect.reason, effect.message, effect.retry_after)
                headers = {"Retry-After": str(effect.retry_after)} if effect.retry_after is not None else {}
                return web.json_response(content, status=effect.status, headers=headers)
            case Page() if not applied:
                exchange.status, exchange.outcome = effect.status, "answered"
                return web.Response(body=effect.body, status=effect.status, content_type=effect.content_type)
            case _:
                continue
    return None


def _has_applied(effects: Iterable[Effect]) -> bool:
    return any(isinstance(effect, Delay | Act | Cut | Answer) and effect.applied for effect in effects)


async def _pass_on(
    request: web.Request,
    exchange: Exchange,
    effects: Sequence[Effect],
    upstream: aiohttp.ClientResponse,
    chunks: list[bytes] | None,
) -> web.StreamResponse:
    """Pass the answer on; `chunks` is its body when it was read already."""
    headers = [(name, value) for name, value in upstream.headers.items() if name.lower() not in _NOT_PASSED_ON]
    dropped = [effect.path for effect in effects if isinstance(effect, DropField) and effect.of == "response"]
    if dropped and not exchange.request.is_watch:
        body = b"".join(chunks) if chunks is not None else await upstream.read()
        for path in dropped:
            body = bodies.without_field(body, path)
        chunks = [body]
        headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        headers.append(("Content-Length", str(len(body))))
    downstream = Downstream(request, exchange, effects)
    try:
        try:
            await downstream.start(upstream.status, headers)
            if chunks is not None:
                for chunk in chunks:
                    await downstream.write(chunk)
            else:
                async for chunk in upstream.content.iter_any():
                    await downstream.write(chunk)
        except EndOfStream:
            pass
        return await downstream.end()
    finally:
        downstream.drop()
