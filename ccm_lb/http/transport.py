"""The one way to the cloud: limited, fenced, patient. What every backend is handed as `context.transport`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import aiohttp
import tenacity
import yarl

from ccm_lb.backends import base, changes
from ccm_lb.errors import CloudUnreachableError, NotLeaderError, RetryAfterError
from ccm_lb.http import pacing
from ccm_lb.redaction import Secrets

ATTEMPTS = 3
RETRY_WINDOW = 10.0
"""Seconds after the start of a call in which an attempt may still begin; beyond it the workqueue's backoff takes over."""

LONGEST_PAUSE = 5.0
"""Seconds that a call waits because the cloud asked for it; a longer pause is handed to the workqueue as RetryAfterError."""

UNSAID_PAUSE = 1.0
"""Seconds to stay away after a 429 that names no time."""

READS = frozenset({"GET", "HEAD", "OPTIONS"})
REPEATABLE = READS | {"PUT", "DELETE"}
CREDENTIALS = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "x-auth-token",
        "x-api-key",
        "x-amz-security-token",
        "private-token",
    }
)
"""Request headers (in small letters) that hold a secret."""

LOOKS_LIKE_CREDENTIALS = re.compile("auth|secret|passw|api-?key|access-?key|session|token", re.IGNORECASE)
"""Request headers of other names that hold one if they are as long as one, which "true" is not."""

NO_CREDENTIALS = frozenset({"fencing-token"})
"""Those of them (in small letters) that hold none."""

SHORTEST_UNKNOWN = 12
"""Characters of the value of such a header."""

SECRET_PARAMS = frozenset({"access_token", "token", "api_key", "apikey", "password", "secret"})
"""Parameters in a URL (in small letters) that hold one; not those that name a page."""

_TRANSIENT = frozenset({502, 503, 504})  # not 500: a cloud that failed on a request fails on it again


class Fence(Protocol):
    """Whether this process may write; the elector."""

    def holds(self) -> bool: ...

    @property
    def fencing_token(self) -> str | None: ...


class Observer(Protocol):
    """Told of every request that was sent: its method, the status or "error", and how many seconds it took."""

    def __call__(self, method: str, code: str, seconds: float) -> None: ...


@dataclasses.dataclass(frozen=True)
class _Request:
    method: str
    url: yarl.URL
    body: bytes | None
    headers: Mapping[str, str]
    idempotent: bool
    writes: bool

    def __str__(self) -> str:
        # Without query and user: both carry secrets in some clouds, and this ends up in events and logs.
        return f"{self.method} {self.url.with_query(None).with_fragment(None).with_user(None)}"


class CloudTransport:
    """
    A `backends.base.Transport` over aiohttp, to be opened in the loop that uses it.

    Reads go out without the Lease, since followers open their backend too; everything else needs it at the moment of sending.
    """

    def __init__(
        self,
        fence: Fence,
        clock: base.Clock,
        *,
        secrets: Secrets,
        max_concurrent: int = 64,
        timeout: float = 30.0,
        observer: Observer | None = None,
    ) -> None:
        """
        `max_concurrent` requests are under way at most, each given `timeout` seconds from connecting to the last byte.

        `secrets` is told of every credential that a request carries, whoever wrote the backend.
        """
        self._fence, self._clock, self._observer = fence, clock, observer
        self._secrets = secrets
        self._slots = asyncio.Semaphore(max_concurrent)
        self._timeout = timeout
        self._holds: dict[yarl.URL, pacing.Hold] = {}
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._timeout),
            headers={"User-Agent": f"ccm-lb/{importlib.metadata.version('ccm-lb')}"},
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=0),  # the slots are the limit
            middlewares=(pacing.send_once,),
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def fencing_token(self) -> str | None:
        return self._fence.fencing_token

    @contextlib.asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """See `base.Transport.permit`."""
        async with self._slots:
            self._check_fence("the call")
            yield

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        writes: bool | None = None,
    ) -> base.Response:
        """See `base.Transport.request`. Redirects are not followed: the answer is the backend's to judge."""
        self._note_credentials(url, headers or {}, params or {})
        data = None if body is None else json.dumps(body).encode()
        content_type = {} if body is None else {"Content-Type": "application/json"}
        request = _Request(
            method=method.upper(),
            url=yarl.URL(url).update_query(params or {}),
            body=data,
            headers={"Accept": "application/json", **content_type, **(headers or {})},
            idempotent=method.upper() in REPEATABLE if idempotent is None else idempotent,
            writes=method.upper() not in READS if writes is None else writes,
        )
        hold = self._holds.setdefault(request.url.origin(), pacing.Hold(self._clock))
        begin = self._clock.monotonic()

        def repeat(state: tenacity.RetryCallState) -> bool:
            late = self._clock.monotonic() - begin >= RETRY_WINDOW
            return not late and _may_repeat(request, state)

        attempts = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            retry=repeat,
            wait=_pause,
            sleep=self._clock.sleep,
            retry_error_callback=_last_outcome,
        )
        try:
            response: base.Response = await attempts(self._attempt, request, hold, begin + LONGEST_PAUSE)
        except pacing.HeldError as error:
            raise RetryAfterError(f"the cloud asks for a pause before {request}", error.delay) from error
        if response.status == 429:
            raise RetryAfterError(f"the cloud limits the rate of requests: {request} answered 429", hold.remaining())
        if response.status == 503 and not request.idempotent and hold.remaining():
            raise RetryAfterError(f"the cloud asks for a pause: {request} answered 503", hold.remaining())
        return response

    def _note_credentials(self, url: str, headers: Mapping[str, str], params: Mapping[str, str]) -> None:
        self._secrets.add_url(url)
        for name, value in headers.items():
            if name.lower() in CREDENTIALS or (
                LOOKS_LIKE_CREDENTIALS.search(name)
                and name.lower() not in NO_CREDENTIALS
                and len(value) >= SHORTEST_UNKNOWN
            ):
                self._secrets.add_header(value)
            elif name.lower() == "cookie":
                self._secrets.add(*(one.partition("=")[2] for one in value.split(";")))
        self._secrets.add(*(str(value) for name, value in params.items() if name.lower() in SECRET_PARAMS))

    async def _attempt(self, request: _Request, hold: pacing.Hold, deadline: float) -> base.Response:
        while True:
            await hold.wait(deadline)
            async with self._slots:
                # While this one waited for a slot, another may have been told to pause.
                if hold.remaining():
                    continue
                if request.writes:
                    self._check_fence(str(request))
                response = await self._send(request)
                if request.writes and response.status < 400:
                    changes.note()
            asked = pacing.retry_after(response.headers) if response.status in (429, 503) else None
            if asked is None and response.status == 429:
                asked = UNSAID_PAUSE
            if asked is not None:
                hold.extend(asked)
            return response

    def _check_fence(self, what: str) -> None:
        if not self._fence.holds():
            raise NotLeaderError(f"{what} was not sent: this replica does not hold the Lease")

    async def _send(self, request: _Request) -> base.Response:
        if self._session is None:
            raise RuntimeError("the transport is not open")
        begin, code = self._clock.monotonic(), "error"
        try:
            async with self._session.request(
                request.method, request.url, data=request.body, headers=request.headers, allow_redirects=False
            ) as response:
                body = await response.read()
            code = str(response.status)
            return base.Response(response.status, response.headers, body)
        except TimeoutError as error:
            raise CloudUnreachableError(f"{request}: no answer within {self._timeout:g} s") from error
        except aiohttp.ClientError as error:
            raise CloudUnreachableError(f"{request}: {_cause(error)}") from error
        finally:
            if self._observer is not None:
                self._observer(request.method, code, self._clock.monotonic() - begin)


def _cause(error: aiohttp.ClientError) -> str:
    # Two of aiohttp's errors print the whole URL.
    if isinstance(error, aiohttp.ClientResponseError):
        return f"not HTTP: {error.message}"
    if isinstance(error, aiohttp.InvalidURL):
        return "the URL is not valid"
    return str(error) or type(error).__name__


def _may_repeat(request: _Request, state: tenacity.RetryCallState) -> bool:
    outcome = state.outcome
    if outcome is None:
        return False
    if (error := outcome.exception()) is not None:
        return request.idempotent and isinstance(error, CloudUnreachableError)
    status = outcome.result().status
    # A 429 says that nothing was done, so anything may be repeated.
    return bool(status == 429 or (request.idempotent and status in _TRANSIENT))


_backoff = tenacity.wait_random_exponential(multiplier=0.4, min=0.2, max=2)


def _pause(state: tenacity.RetryCallState) -> float:
    outcome = state.outcome
    if outcome is not None and outcome.exception() is None and outcome.result().status == 429:
        return 0.0  # the hold says when
    return _backoff(state)


def _last_outcome(state: tenacity.RetryCallState) -> base.Response:
    if state.outcome is None:
        raise RuntimeError("no attempt was made")
    response: base.Response = state.outcome.result()  # raises what the attempt raised
    return response
