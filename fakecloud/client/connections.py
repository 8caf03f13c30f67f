"""How requests are sent: by the standard library, or by aiohttp. No proxy of the environment sees them, no redirect is followed."""

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from fakecloud.client.errors import FakecloudError, UnreachableError, refused
from fakecloud.client.requests import USER_AGENT, Endpoint, Request

if TYPE_CHECKING:
    import aiohttp

_DATA = b"data: "


class Connection:
    """Sends one request at a time, from any thread."""

    def __init__(self, endpoint: Endpoint, seconds: float, user_agent: str = USER_AGENT) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._headers = _headers(endpoint, user_agent)
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def close(self) -> None:
        """Nothing is kept open between requests."""

    def send(self, request: Request) -> bytes:
        """The body of the answer. Raises RefusedError, UnreachableError."""
        with self._open(request, self._seconds) as response:
            content: bytes = response.read()
        return content

    def events(self, request: Request) -> Iterator[Any]:
        """The data of server-sent events, as they come, without end. Raises RefusedError, UnreachableError."""
        with self._open(request, None) as response:
            for line in response:
                if line.startswith(_DATA):
                    yield json.loads(line.removeprefix(_DATA))

    @contextlib.contextmanager
    def _open(self, request: Request, seconds: float | None) -> Iterator[Any]:
        sent = urllib.request.Request(  # noqa: S310 - http(s) only, checked by Endpoint
            self._endpoint.url + request.target,
            request.body,
            {**self._headers, **request.headers},
            method=request.method,
        )
        try:
            with self._opener.open(sent, timeout=seconds) as response:
                yield response
        except urllib.error.HTTPError as error:
            with error:
                raise refused(str(request), error.code, _rest(error), error.headers.get("Retry-After")) from error
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(self._endpoint, getattr(error, "reason", error)) from error


class AsyncConnection:
    """Sends any number of requests at once, in one loop."""

    def __init__(self, endpoint: Endpoint, seconds: float, user_agent: str = USER_AGENT) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._headers = _headers(endpoint, user_agent)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close what is open; the next request opens it again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def send(self, request: Request) -> bytes:
        """The body of the answer. Raises RefusedError, UnreachableError."""
        async with self._open(request, self._seconds) as response:
            return await response.read()

    async def events(self, request: Request) -> AsyncIterator[Any]:
        """The data of server-sent events, as they come, without end. Raises RefusedError, UnreachableError."""
        async with self._open(request, None) as response:
            async for line in response.content:
                if line.startswith(_DATA):
                    yield json.loads(line.removeprefix(_DATA))

    @contextlib.asynccontextmanager
    async def _open(self, request: Request, seconds: float | None) -> AsyncIterator["aiohttp.ClientResponse"]:
        # A second of importing that programs without a loop need not pay.
        import aiohttp
        import yarl

        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers)
        try:
            async with self._session.request(
                request.method,
                yarl.URL(self._endpoint.url + request.target, encoded=True),
                data=request.body,
                headers=request.headers,
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as response:
                if response.status >= 300:
                    content = await response.read()
                    raise refused(str(request), response.status, content, response.headers.get("Retry-After"))
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(self._endpoint, error) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token goes nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _headers(endpoint: Endpoint, user_agent: str) -> dict[str, str]:
    token = {} if endpoint.token is None else {"Authorization": f"Bearer {endpoint.token}"}
    return {"User-Agent": user_agent, "Content-Type": "application/json", **token}


def _rest(error: urllib.error.HTTPError) -> bytes:
    try:
        content: bytes = error.read()
    except (OSError, http.client.HTTPException):
        return b""
    return content


def _unreachable(endpoint: Endpoint, reason: object) -> FakecloudError:
    text = str(reason) or type(reason).__name__
    return UnreachableError(f"{endpoint.url} does not answer: {text}; is `fakecloud serve` running?")
