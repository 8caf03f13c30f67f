"""A transport for those who only want to know what would be written: reads pass, the first write of a call is noted and ends it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping

import yarl

from ccm_lb.backends.base import Response, Transport
from ccm_lb.errors import CCMError
from ccm_lb.http.transport import READS


class WriteRefusedError(CCMError):
    """Something would have been written, and was not."""


class Guard:
    """A `backends.base.Transport` around `inner`."""

    fencing_token: str | None = None

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._refused: list[str] = []

    def refused(self) -> tuple[str, ...]:
        """What would have been sent since this was last asked: method and URL, without what may be a secret."""
        found, self._refused = tuple(self._refused), []
        return found

    @contextlib.asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """A vendor's SDK does not say what it sends: all of it counts as a write."""
        self._refuse("a call of the vendor's SDK")
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
    ) -> Response:
        if method.upper() not in READS if writes is None else writes:
            self._refuse(f"{method.upper()} {yarl.URL(url).with_query(None).with_fragment(None).with_user(None)}")
        return await self._inner.request(
            method, url, body=body, headers=headers, params=params, idempotent=idempotent, writes=False
        )

    def _refuse(self, what: str) -> None:
        self._refused.append(what)
        raise WriteRefusedError(f"{what} was not sent: nothing is written")
