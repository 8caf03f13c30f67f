"""Requests to the Kubernetes API: plain JSON in and out, its refusals as our errors, a few repeats within one call."""

from __future__ import annotations

import dataclasses
import ssl
from collections.abc import Mapping
from typing import Any, Protocol

import aiohttp
import orjson
import tenacity
import yarl

from ccm_lb.backends import base
from ccm_lb.errors import (
    ApiError,
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)
from ccm_lb.http import pacing
from ccm_lb.kube import authorization
from ccm_lb.redaction import Secrets

FIELD_MANAGER = "ccm-lb"
"""The name under which the API server records our writes (managedFields), unless `KubeApi` is given another one."""

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"

ATTEMPTS = 3
RETRY_WINDOW = 10.0
"""Seconds after the start of a call in which an attempt may still begin, and for which a pause that the server asks for is waited."""

UNSAID_PAUSE = 1.0
"""Seconds to stay away after a 429 that names no time."""

PAGE = 200
"""Bytes that are told of an answer that is not Kubernetes' own."""

_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"
_TRANSIENT = frozenset({500, 502, 503, 504})
_ERRORS: Mapping[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    422: InvalidError,
}


class Observer(Protocol):
    """
    Told of every request: its method, the status or "error", how many seconds it took, and the server's host and port.

    A 401 may not have been sent: a refused credential rests for a while.
    """

    def __call__(self, method: str, code: str, seconds: float, host: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """One API server: its URL without a slash at the end, and how to get in. For sessions in any thread."""

    server: str
    tls: ssl.SSLContext
    credentials: authorization.Credentials
    secrets: Secrets
    tls_server_name: str | None = None
    proxy: str | None = None
    timeout: float = 30.0  # seconds for one request, from connecting to the last byte

    def session(self, user_agent: str, *middlewares: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """A new session with connections of its own, for the running loop."""
        authorizer = authorization.Authorizer(self.credentials, yarl.URL(self.server), self.tls_server_name)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent},
            middlewares=(authorizer, *middlewares),
            proxy=self.proxy,
            timeout=aiohttp.ClientTimeout(total=self.timeout),
        )


@dataclasses.dataclass(frozen=True)
class _Request:
    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class KubeApi:
    """
    One client of the API server, in the running loop; `await close()` ends it.

    Every method raises ApiError, as its subclasses tell, for what the server refused, and ApiUnreachableError when there was no
    answer or none of Kubernetes'. What may be repeated is: everything but POST, and POST when the server was too busy to look at it.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        clock: base.Clock,
        *,
        user_agent: str,
        field_manager: str = FIELD_MANAGER,
        bucket: pacing.TokenBucket | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._endpoint, self._clock = endpoint, clock
        self._user_agent, self._field_manager = user_agent, field_manager
        self._bucket, self._observer = bucket, observer
        self._hold = pacing.Hold(clock)
        self._host = yarl.URL(endpoint.server).authority
        self._session = endpoint.session(user_agent, pacing.send_once)

    @property
    def server(self) -> str:
        return self._endpoint.server

    def kopf_session(self) -> aiohttp.ClientSession:
        """A session for kopf, made in its thread and closed by it, that logs in as we do."""
        return self._endpoint.session(self._user_agent)

    def sibling(self) -> KubeApi:
        """
        A client of the same server with connections and pauses of its own and no limit, to be closed separately.

        For the Lease, which must be renewed however busy the other one is.
        """
        return KubeApi(
            self._endpoint,
            self._clock,
            user_agent=self._user_agent,
            field_manager=self._field_manager,
            observer=self._observer,
        )

    async def close(self) -> None:
        await self._session.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        return await self._call(_Request("GET", path, params or {}, {"Accept": "application/json"}, None))

    async def list_metadata(self, path: str, params: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """The objects of a list as PartialObjectMetadata, all pages of it."""
        items: list[dict[str, Any]] = []
        page = dict(params or {})
        while True:
            answer = await self._call(_Request("GET", path, page, {"Accept": _METADATA_ONLY}, None))
            if "items" not in answer:
                raise ApiUnreachableError(f"{self.server} answered GET {path} with no list: is it a Kubernetes API?")
            items += answer["items"] or ()
            if not (more := answer.get("metadata", {}).get("continue")):
                return items
            page["continue"] = more

    async def post(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """`dry_run`: checked and answered as usual, and not stored."""
        return await self._write("POST", path, body, "application/json", {"dryRun": "All"} if dry_run else {})

    async def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._write("PUT", path, body, "application/json")

    async def patch(
        self, path: str, body: Mapping[str, Any], content_type: str = STRATEGIC_MERGE, *, dry_run: bool = False
    ) -> dict[str, Any]:
        """`dry_run`: checked and answered as usual, and not stored."""
        return await self._write("PATCH", path, body, content_type, {"dryRun": "All"} if dry_run else {})

    async def _write(
        self, method: str, path: str, body: Mapping[str, Any], content_type: str, more: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        params = {"fieldManager": self._field_manager, **(more or {})}
        return await self._call(_Request(method, path, params, headers, orjson.dumps(body)))

    async def _call(self, request: _Request) -> dict[str, Any]:
        deadline = self._clock.monotonic() + RETRY_WINDOW
        try:
            return await self._attempt(request, deadline)
        except (ApiError, ApiUnreachableError) as error:
            # Nearly every call succeeds, and what counts attempts costs more than they do: it begins with one that failed.
            return await self._repeat(request, deadline, error)

    async def _repeat(self, request: _Request, deadline: float, failed: Exception) -> dict[str, Any]:
        attempts = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            retry=tenacity.retry_if_exception(
                lambda error: self._clock.monotonic() < deadline and _may_repeat(request, error)
            ),
            wait=_pause,
            sleep=self._clock.sleep,
            reraise=True,
        )
        failures = [failed]

        async def attempt() -> dict[str, Any]:
            if failures:
                raise failures.pop()
            return await self._attempt(request, deadline)

        answer: dict[str, Any] = await attempts(attempt)
        return answer

    async def _attempt(self, request: _Request, deadline: float) -> dict[str, Any]:
        try:
            await self._hold.wait(deadline)
        except pacing.HeldError as error:
            message = f"{request} was not sent: {self.server} asked for a pause, of which {error.delay:.0f} s are left"
            raise ApiError(message, status=429, reason="TooManyRequests", retry_after=error.delay) from error
        if self._bucket is not None:
            await self._bucket.take()
        return await self._send(request)

    async def _send(self, request: _Request) -> dict[str, Any]:
        begin, code = self._clock.monotonic(), "error"
        try:
            async with self._session.request(
                request.method,
                self.server + request.path,
                params=request.params,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
            ) as response:
                code = str(response.status)
                body = await response.read()
        except authorization.RefusedError as error:
            code = "401"
            raise UnauthorizedError(f"{request}: {error}", status=401, reason="Unauthorized") from error
        except TimeoutError as error:
            message = f"{self.server} gave no answer to {request} within {self._endpoint.timeout:g} s"
            raise ApiUnreachableError(message) from error
        except aiohttp.ClientError as error:
            raise ApiUnreachableError(f"{self.server} cannot be reached: {request}: {_cause(error)}") from error
        finally:
            if self._observer is not None:
                self._observer(request.method, code, self._clock.monotonic() - begin, self._host)
        return self._judge(request, response.status, response.headers, body)

    def _judge(self, request: _Request, status: int, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        answer = _object(body)
        if status < 300:
            if answer is None:
                raise ApiUnreachableError(
                    f"{self.server} answered {request} with something that is no JSON object: is it a Kubernetes API?"
                )
            return answer
        error = self._refusal(request, status, headers, answer, body)
        if error.retry_after is not None:
            self._hold.extend(error.retry_after)
        raise error

    def _refusal(
        self,
        request: _Request,
        status: int,
        headers: Mapping[str, str],
        answer: Mapping[str, Any] | None,
        body: bytes,
    ) -> ApiError:
        asked = pacing.retry_after(headers) if status in (429, 503) else None
        if asked is None and status == 429:
            asked = UNSAID_PAUSE
        if answer is None or answer.get("kind") != "Status":
            # Not Kubernetes' own words, but a proxy's, say: its 404 does not mean that the object is gone. It may hold our request.
            text = self._endpoint.secrets.line(body.decode(errors="replace").strip(), PAGE)
            return ApiError(f"{request}: {status} {text}".rstrip(), status=status, retry_after=asked)
        message, reason = answer.get("message") or "no message", answer.get("reason") or ""
        error = _ERRORS.get(status, ApiError)
        return error(f"{request}: {message}", status=status, reason=reason, retry_after=asked)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        answer = orjson.loads(body)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _may_repeat(request: _Request, error: BaseException) -> bool:
    if isinstance(error, ApiError) and error.status == 429:
        return True  # refused before it was looked at
    if request.method == "POST":
        return False
    return isinstance(error, ApiUnreachableError) or (isinstance(error, ApiError) and error.status in _TRANSIENT)


_backoff = tenacity.wait_random_exponential(multiplier=0.4, min=0.2, max=2)


def _pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    # The server's own time is waited for before the next attempt.
    return 0.0 if isinstance(error, ApiError) and error.retry_after is not None else _backoff(state)


def _cause(error: aiohttp.ClientError) -> str:
    return error.message if isinstance(error, aiohttp.ClientResponseError) else str(error) or type(error).__name__
