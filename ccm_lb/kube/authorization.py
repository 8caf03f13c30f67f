"""
Putting the credential on each request to the Kubernetes API, and reading it anew when it is old or refused.

One `Credentials` serves all sessions, in whichever thread: ours and kopf's. Reading happens in a worker thread; everything else
is a few assignments. Whether the server takes it is known for each session.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import threading
from collections.abc import Callable

import aiohttp
import yarl

from ccm_lb.backends import base
from ccm_lb.kube import credentials
from ccm_lb.redaction import Secrets

logger = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 5.0
"""Seconds, doubling from the one to the other, before a refused credential is read anew and tried again."""


class RefusedError(aiohttp.ClientConnectionError):
    """
    Not sent, or sent in vain: the API server refuses our credential and there is no other (yet).

    A connection error to aiohttp's users: kopf then waits and tries again, where a 401 would end it.
    """


class _Backoff:
    def __init__(self) -> None:
        self._seconds = 0.0

    def grow(self) -> float:
        self._seconds = min(max(FIRST_PAUSE, 2 * self._seconds), LONGEST_PAUSE)
        return self._seconds

    def reset(self) -> None:
        self._seconds = 0.0


class Credentials:
    """The present credential, and whether it is due to be read anew. For any thread."""

    def __init__(self, source: credentials.Source, clock: base.Clock, secrets: Secrets) -> None:
        """`secrets` is told of every credential that is read."""
        self._source, self._clock = source, clock
        self._secrets = secrets
        self._reading = threading.Lock()  # held while a plug-in runs, so never taken in an event loop
        self._lock = threading.Lock()
        self._header: str | None = None
        self._read_at = -math.inf
        self._missing = "no credential was read yet"  # why there is none, empty when there is one
        self._failures = _Backoff()

    def due(self) -> bool:
        """Whether `read` is to be called before the next request."""
        return self._clock.monotonic() >= self._read_at

    def read(self) -> None:
        """Read the source, if that is due; may block. Raises CredentialError, and what there was before stays in use."""
        with self._reading:
            if self.due():
                self._read()

    def renew(self, refused: str | None, *, known: bool) -> bool:
        """
        Whether there is another header than `refused`, which the server just did, read anew unless that was `known`; may block.

        Raises CredentialError.
        """
        with self._reading:
            if self._header == refused and not known:
                self._read()
            return self._header != refused

    def header(self) -> str | None:
        """The header for the next request. Raises RefusedError: there is none."""
        with self._lock:
            if self._missing:
                raise RefusedError(self._missing)
            return self._header

    def expire(self, at: float) -> None:
        """Read the source anew from then on."""
        with self._lock:
            self._read_at = at

    def standing(self) -> Standing:
        """What a server thinks of this credential, not known yet."""
        return Standing(self._clock)

    def _read(self) -> None:
        try:
            credential = self._source.read()
        except credentials.CredentialError as error:
            with self._lock:
                self._read_at = self._clock.monotonic() + self._failures.grow()
                self._missing = self._missing and str(error)
            raise
        self._secrets.add_header(credential.header)
        with self._lock:
            self._failures.reset()
            fresh_for = math.inf if credential.fresh_for is None else credential.fresh_for
            self._read_at = self._clock.monotonic() + fresh_for
            self._missing = ""
            self._header = credential.header


class Standing:
    """
    Whether the server takes the credential from one session, in the session's loop.

    Each session has its own: where a 401 meets the requests of one only, the Lease is not to be lost for them.
    """

    def __init__(self, clock: base.Clock) -> None:
        self._clock = clock
        self._header: str | None = None
        self.refused = self._probing = False
        self._retry_at = 0.0
        self._refusals = _Backoff()

    def admit(self, header: str | None) -> None:
        """Raises RefusedError while `header` rests after a refusal; after its pause one request at a time may try it."""
        if header != self._header:
            self._header, self.refused, self._probing = header, False, False
        if not self.refused:
            return
        now = self._clock.monotonic()
        if now < self._retry_at:
            raise RefusedError("the Kubernetes API refuses our credential (401); it is tried again after a pause")
        self._probing, self._retry_at = True, now + LONGEST_PAUSE

    def accepted(self, header: str | None) -> None:
        """The server took `header`."""
        if header == self._header:
            self.refused = self._probing = False
            self._refusals.reset()

    def refuse(self, header: str | None) -> float | None:
        """
        The server refused `header`, and there is no other: when it is tried again, None if that was known.

        Those that were under way together count once.
        """
        if header != self._header or (self.refused and not self._probing):
            return None
        self.refused, self._probing = True, False
        self._retry_at = self._clock.monotonic() + self._refusals.grow()
        return self._retry_at


class Authorizer:
    """An aiohttp client middleware that puts the present credential on each request to one server; one for each session."""

    def __init__(self, present: Credentials, server: yarl.URL, tls_server_name: str | None = None) -> None:
        self._credentials, self._origin, self._tls_server_name = present, server.origin(), tls_server_name
        self._standing = present.standing()
        self._reading = asyncio.Lock()  # one worker thread for all that wait for the same reading

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Raises RefusedError instead of returning a 401, which is tried once more if the credential has changed."""
        if request.url.origin() != self._origin:
            return await handler(request)  # a redirect to elsewhere is told nothing
        request.server_hostname = self._tls_server_name
        if self._credentials.due():
            async with self._reading:
                if self._credentials.due():
                    await self._in_thread(self._credentials.read)
        header, response = await self._send(request, handler)
        if response.status == 401:
            await response.read()
            async with self._reading:
                known = self._standing.refused
                changed = await self._in_thread(functools.partial(self._credentials.renew, header, known=known))
            if changed:
                header, response = await self._send(request, handler)
        if response.status == 401:
            await response.read()
            if (retry_at := self._standing.refuse(header)) is not None:
                self._credentials.expire(retry_at)
            raise RefusedError("the Kubernetes API refuses our credential (401), also after it was read anew")
        self._standing.accepted(header)
        return response

    async def _send(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> tuple[str | None, aiohttp.ClientResponse]:
        header = self._credentials.header()
        self._standing.admit(header)
        if header is not None:
            request.headers["Authorization"] = header
        return header, await handler(request)

    async def _in_thread(self, read: Callable[[], bool | None]) -> bool:
        try:
            return bool(await asyncio.to_thread(read))
        except credentials.CredentialError as error:
            logger.warning("cannot read the credential for the Kubernetes API", extra={"cause": str(error)})
            return False
