"""The proxy itself: takes requests, asks the rules, forwards, passes answers on."""

import asyncio
import copy
import itertools
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

from tests.controlplane.server import free_ports
from tests.faultproxy import bodies, forward
from tests.faultproxy.downstream import CutConnection, close_connection
from tests.faultproxy.effects import Effect
from tests.faultproxy.exchange import Exchange
from tests.faultproxy.rules import Armed, Match, Request, Rule, RuleBook

_HOST = "127.0.0.1"
_BODY_LIMIT = 64 * 1024 * 1024


class FaultProxy:
    """
    `async with` serves it on a loopback port; `url` is where clients go.

    Credentials pass through, since they are headers; a client certificate can't. `ca` verifies an https upstream. `tls` is the
    (certificate, key) shown to clients, without it they speak plain HTTP; the control plane's own pair serves, and then its CA
    verifies the proxy too.
    """

    def __init__(self, upstream: str, *, ca: Path | None = None, tls: tuple[Path, Path] | None = None) -> None:
        (self._port,) = free_ports(1)
        self.url = f"{'https' if tls else 'http'}://{_HOST}:{self._port}"
        self._upstream = upstream.rstrip("/")
        self._upstream_tls = ssl.create_default_context(cafile=str(ca)) if ca else True
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if tls else None
        if self._tls is not None and tls is not None:
            self._tls.load_cert_chain(*tls)
        self._book: RuleBook[Effect] = RuleBook()
        self._log: list[Exchange] = []
        self._numbers = itertools.count(1)
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None

    async def __aenter__(self) -> Self:
        # A connection each: a kept one that the server has closed meanwhile would be a fault that nobody ordered.
        connector = aiohttp.TCPConnector(ssl=self._upstream_tls, limit=0, force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
            auto_decompress=False,
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
        )
        # aiohttp sends a GET, PUT or DELETE once more when the connection breaks; the server must get what the client sent, once.
        self._session._retry_connection = False
        app = web.Application(client_max_size=_BODY_LIMIT)
        app.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await self._runner.setup()
        await self.accept()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def add(self, rule: Rule[Effect]) -> Armed[Effect]:
        """Put a rule in force for requests that come from now on."""
        return self._book.add(rule, time.monotonic())

    def remove(self, armed: Armed[Effect]) -> None:
        """Take a rule out of force."""
        self._book.remove(armed)

    def clear(self) -> None:
        """Take all rules out of force; answers that are open stay as they are."""
        self._book.clear()

    def cut(self, match: Match | None = None, *, reset: bool = False) -> int:
        """Close the connections of open answers (watches, mostly) now; returns how many."""
        found = self.open(match)
        for exchange in found:
            if exchange.answer is not None:
                exchange.answer.close(reset=reset)
        return len(found)

    def stall(self, match: Match | None = None) -> int:
        """Pass nothing more on to open answers, and keep them open, until `resume`; returns how many."""
        found = self.open(match)
        for exchange in found:
            exchange.flowing.clear()
        return len(found)

    def resume(self, match: Match | None = None) -> int:
        """Let stalled answers flow again, with what came meanwhile; returns how many."""
        found = self.open(match)
        for exchange in found:
            exchange.flowing.set()
        return len(found)

    async def inject(self, event: dict[str, Any], match: Match | None = None, *, end: bool = False) -> int:
        """Send an event of ours into open watches, and end these after it if told so; returns how many."""
        streams = [
            exchange for exchange in self.open(match) if exchange.request.is_watch and exchange.status is not None
        ]
        for exchange in streams:
            if exchange.answer is not None:
                await exchange.answer.inject(bodies.line_of(event), end=end)
        return len(streams)

    async def expire(self, match: Match | None = None) -> int:
        """End open watches by an ERROR event 410, as after a compaction; returns how many."""
        return await self.inject(bodies.error_event(410, "Expired", "too old resource version"), match, end=True)

    async def refuse(self) -> None:
        """Stop listening: new connections are refused, open ones stay."""
        if self._site is not None:
            await self._site.stop()
            self._site = None

    async def accept(self) -> None:
        """Listen again on the same port."""
        if self._site is None and self._runner is not None:
            self._site = web.TCPSite(self._runner, _HOST, self._port, ssl_context=self._tls, reuse_address=True)
            await self._site.start()

    def show(self, certificate: Path, key: Path) -> None:
        """Show another certificate to clients that connect from now on; of a proxy that was given one."""
        assert self._tls is not None, "this proxy speaks plain HTTP"
        self._tls.load_cert_chain(certificate, key)

    @property
    def requests(self) -> Sequence[Exchange]:
        """Everything that was asked, in order of arrival."""
        return tuple(self._log)

    def matching(self, match: Match) -> list[Exchange]:
        """The requests so far that match."""
        return [exchange for exchange in self._log if match.matches(exchange.request)]

    def open(self, match: Match | None = None) -> list[Exchange]:
        """Those whose answers are being passed on."""
        return [exchange for exchange in self.matching(match or Match()) if exchange.is_open]

    def forget(self) -> None:
        """Empty the log, but for the requests that are still under way."""
        self._log = [exchange for exchange in self._log if exchange.outcome == "pending"]

    async def wait_for(self, match: Match, count: int = 1, *, timeout: float = 60.0) -> list[Exchange]:
        """Wait until `count` matching requests have come; TimeoutError after `timeout` seconds."""
        return await _reached(lambda: self.matching(match), count, timeout)

    async def wait_for_open(self, match: Match, count: int = 1, *, timeout: float = 60.0) -> list[Exchange]:
        """Wait until `count` matching answers are being passed on, their heads sent; TimeoutError after `timeout` seconds."""
        return await _reached(lambda: [one for one in self.open(match) if one.status is not None], count, timeout)

    def kubeconfig(self, source: Path, target: Path) -> Path:
        """Write `source` with this proxy as the server of every cluster, same credentials, readable by its owner."""
        content = copy.deepcopy(yaml.safe_load(source.read_text()))
        for entry in content["clusters"]:
            entry["cluster"]["server"] = self.url
            if self._tls is None:
                for key in ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"):
                    entry["cluster"].pop(key, None)
        target.touch(mode=0o600)
        target.write_text(yaml.safe_dump(content, sort_keys=False))
        return target

    async def _take(self, request: web.Request) -> web.StreamResponse:
        seen = Request(request.method, request.path, dict(request.query), request.headers.get("User-Agent", ""))
        exchange = Exchange(next(self._numbers), time.monotonic(), seen)
        self._log.append(exchange)
        effects = self._book.effects(seen, time.monotonic())
        try:
            exchange.body = await request.read()
            assert self._session is not None
            return await forward.play(self._session, self._upstream, request, exchange, effects)
        except CutConnection as cut:
            exchange.outcome = "cut"
            close_connection(request, reset=cut.reset)
        except (aiohttp.ClientError, OSError):
            # Either side is gone; the client of a broken server would see a broken connection too.
            exchange.outcome = "client gone" if request.transport is None else "upstream gone"
            close_connection(request, reset=False)
        except asyncio.CancelledError:
            if exchange.outcome == "pending":
                exchange.outcome = "client gone"
            raise
        return web.Response(status=502)  # nobody reads it: the connection is closed


async def _reached(find: Callable[[], list[Exchange]], count: int, timeout: float) -> list[Exchange]:
    async with asyncio.timeout(timeout):
        while len(found := find()) < count:
            await asyncio.sleep(0.01)
    return found
