"""Ways to the cloud for tests: none at all, and one that loses answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager

from ccm_lb.backends.base import Response, Transport
from ccm_lb.errors import CloudUnreachableError

__all__ = ["LossyTransport", "NoTransport"]


class NoTransport:
    """For backends that send no HTTP: permits are granted, a request is a mistake of the test."""

    fencing_token: str | None = None

    @contextlib.asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        yield

    async def request(self, method: str, url: str, **_: object) -> Response:
        raise RuntimeError(f"{method} {url}: this test has no transport; give one in the fixture `transport`")


class LossyTransport:
    """Passes everything on to `inner`; after `lose_next_write` the next request that is not a GET is carried out, its answer lost."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._lose = False

    def lose_next_write(self) -> None:
        self._lose = True

    @property
    def fencing_token(self) -> str | None:
        return self._inner.fencing_token

    def permit(self) -> AbstractAsyncContextManager[None]:
        return self._inner.permit()

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
    ) -> Response:
        response = await self._inner.request(
            method, url, body=body, headers=headers, params=params, idempotent=idempotent, writes=writes
        )
        if self._lose and (method.upper() != "GET" if writes is None else writes):
            self._lose = False
            raise CloudUnreachableError(f"{method} {url}: the answer was lost (by the test)")
        return response
