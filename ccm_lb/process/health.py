"""
Whether this process is alive and ready, over HTTP, in the form that Kubernetes' own components answer in.

`/livez` and `/healthz` are red only for what a restart may cure: upstream's manifests probe `/healthz` for liveness. `/readyz` is red for
everything that keeps the replica from working (an unreachable cloud, a cache not filled yet). `?verbose` lists the checks,
`?exclude=NAME` leaves one out, `/readyz/NAME` asks for one. `/metrics` is for Prometheus, `/work` for `ccm-lb status`; both only tell.
"""

from __future__ import annotations

import dataclasses
import logging
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from ccm_lb.errors import ConfigError
from ccm_lb.redaction import Secrets
from ccm_lb.settings.config import Config

log = logging.getLogger(__name__)

REASON = 1024  # bytes

WORK_PATH = "/work"
"""Where a replica says what it is at."""

Report = Callable[[], Mapping[str, Any]]
"""What a replica is at, as JSON that holds no secret."""

Probe = Callable[[], str | None]
"""None when all is well, otherwise the reason why not."""

_UNCACHED = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache, private"}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclasses.dataclass(frozen=True)
class _Check:
    name: str
    probe: Probe
    live: Probe | None


class Checks:
    """The named checks. `ping`, which always succeeds, is there from the start."""

    def __init__(self, secrets: Secrets) -> None:
        """No reason leaves with one of `secrets` in it."""
        self._secrets = secrets
        self._checks: dict[str, _Check] = {}
        self.register("ping", lambda: None, live=lambda: None)

    def register(self, name: str, probe: Probe, *, live: Probe | None = None) -> None:
        """
        Ask `probe` at every `/readyz`, and `live` at every `/livez`, if there is one: where that fails, the kubelet restarts the process.

        A check of the same name is replaced.
        """
        self._checks[name] = _Check(name, probe, live)

    def failures(self, *, live: bool = False) -> dict[str, str]:
        """The reasons of the checks that fail, by name."""
        return {name: reason for name, reason in self.results(live=live).items() if reason is not None}

    def results(self, *, live: bool = False) -> dict[str, str | None]:
        """The result of each check, by name: of those for liveness with `live`, otherwise of all."""
        if live:
            reasons = {one.name: one.live() for one in self._checks.values() if one.live is not None}
        else:
            reasons = {one.name: one.probe() for one in self._checks.values()}
        return {
            name: reason if reason is None else self._secrets.line(reason, REASON) for name, reason in reasons.items()
        }

    def fit_to_leave(self, value: object) -> object:
        """A document without secrets: whoever reaches the port reads it."""
        if isinstance(value, Mapping):
            return {name: self.fit_to_leave(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.fit_to_leave(one) for one in value]
        return self._secrets.line(value, REASON) if isinstance(value, str) else value


class HealthServer:
    """Serves `checks` and what `render_metrics` returns on the ports that the configuration names; none is fine too."""

    def __init__(self, config: Config, checks: Checks, render_metrics: Callable[[], bytes]) -> None:
        self._config = config
        self._checks = checks
        self._render_metrics = render_metrics
        self._runner: web.AppRunner | None = None
        self._report: Report | None = None

    def report(self, report: Report) -> None:
        """From now on `/work` answers what this says; until then, that the replica is not ready."""
        self._report = report

    async def start(self) -> None:
        """Listen. Raises ConfigError for a port that is taken or an unusable certificate; nothing listens then."""
        runner = web.AppRunner(self._app(), access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await runner.setup()
        try:
            if self._config.http_port:
                await self._listen(runner, self._config.http_port, "--port", None)
            if self._config.secure_port:
                tls = server_tls(self._config.tls_cert_file, self._config.tls_private_key_file)
                await self._listen(runner, self._config.secure_port, "--secure-port", tls)
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Stop listening; requests under way get a second."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _listen(self, runner: web.AppRunner, port: int, flag: str, tls: ssl.SSLContext | None) -> None:
        address = self._config.bind_address
        shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        try:
            await web.TCPSite(runner, address, port, ssl_context=tls).start()
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"cannot listen on {shown}: {reason}; free it, or choose another with {flag} or --bind-address"
            ) from error
        log.info("serving health and metrics", extra={"address": shown, "tls": tls is not None})

    def _app(self) -> web.Application:
        app = web.Application()
        for path, live in (("livez", True), ("readyz", False), ("healthz", True)):
            app.router.add_get(f"/{path}", _endpoint(self._checks, path, live=live))
            app.router.add_get(f"/{path}/{{name:.+}}", _single(self._checks, live=live))
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get(WORK_PATH, self._work)
        return app

    async def _work(self, _: web.Request) -> web.Response:
        if self._report is None:
            return _text("this replica is not ready yet: /readyz says what it waits for\n", 503)
        return web.json_response(self._checks.fit_to_leave(self._report()), headers=_UNCACHED)

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._render_metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def _endpoint(checks: Checks, path: str, *, live: bool) -> _Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        excluded = request.query.getall("exclude", [])
        results = checks.results(live=live)
        counted = {name: reason for name, reason in results.items() if name not in excluded}
        failed = [name for name, reason in counted.items() if reason is not None]
        if not failed and "verbose" not in request.query:
            return _text("ok", 200)
        lines = [_line(name, reason, excluded=name in excluded) for name, reason in results.items()]
        lines += _unknown(excluded, results)
        lines.append(f"{path} check {'failed' if failed else 'passed'}")
        return _text("\n".join(lines) + "\n", 503 if failed else 200)

    return answer


def _single(checks: Checks, *, live: bool) -> _Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        name, results = request.match_info["name"], checks.results(live=live)
        if name not in results:
            return _text(f"no check is named {name}; there are: {', '.join(results)}\n", 404)
        reason = results[name]
        return _text("ok", 200) if reason is None else _text(_line(name, reason, excluded=False) + "\n", 503)

    return answer


def _line(name: str, reason: str | None, *, excluded: bool) -> str:
    if excluded:
        return f"[+]{name} excluded: ok"
    return f"[+]{name} ok" if reason is None else f"[-]{name} failed: {reason}"


def _unknown(excluded: Iterable[str], known: Iterable[str]) -> list[str]:
    strange = ", ".join(f'"{name}"' for name in excluded if name not in known)
    return [f"warn: some health checks cannot be excluded: no matches for {strange}"] if strange else []


def _text(body: str, status: int) -> web.Response:
    return web.Response(text=body, status=status, headers=_UNCACHED)


def server_tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    """What a server shows. Raises ConfigError for files that are no certificate and its key."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if certificate is None:
        from ccm_lb.process import selfsigned

        selfsigned.load_into(context)
        return context
    try:
        # Without a password of ours OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(str(certificate), str(key), password="")
    except OSError as error:  # an SSLError is one
        raise ConfigError(
            f"--tls-cert-file {certificate} and --tls-private-key-file {key} cannot be used: {error.strerror or error}; "
            "expected a certificate and its unencrypted key, in PEM"
        ) from error
    return context
