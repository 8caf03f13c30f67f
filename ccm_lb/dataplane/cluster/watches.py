"""A watch of the Kubernetes API that goes on for ever, and asks for nothing but itself while all is well."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

import aiohttp

from ccm_lb.dataplane.cluster.observed import Object
from ccm_lb.errors import ApiError, ApiUnreachableError, ForbiddenError

log = logging.getLogger(__name__)

WATCH_SECONDS = 280  # after which the server ends a watch, and we go on with the next
BROKEN_PAUSE = 5.0  # seconds before a watch that broke is opened again
REFUSED_PAUSE = (
    300.0  # seconds, doubling from `BROKEN_PAUSE` to this, before one that is refused: a server that starts refuses too
)

Changed = Callable[[str, Object], None]
"""Told of every change, as the event's type and the object; of "" and {} where changes may have been missed."""


class Api(Protocol):
    """What `kubeapi.KubeApi` offers; errors as in `ccm_lb.errors`."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]: ...


class StreamingApi(Api, Protocol):
    @property
    def server(self) -> str: ...

    def kopf_session(self) -> aiohttp.ClientSession:
        """A logged-in session of our own, to be closed by us."""
        ...


class Watch:
    """One list, watched; `begun` is set as soon as the first attempt to begin has succeeded or failed."""

    def __init__(
        self, api: StreamingApi, session: aiohttp.ClientSession, path: str, params: Mapping[str, str], changed: Changed
    ) -> None:
        """`params` select what is watched of the list at `path`."""
        self._api, self._session, self._path, self._params, self._changed = api, session, path, params, changed
        self._version = ""  # where to go on; empty: from what there is
        self.begun = asyncio.Event()

    async def run(self) -> None:
        """Watch until cancelled; what is refused or breaks is tried again after a pause."""
        loop, refused = asyncio.get_running_loop(), BROKEN_PAUSE
        while True:
            began, pause = loop.time(), BROKEN_PAUSE
            try:
                await self._watch()
                refused = BROKEN_PAUSE
                if loop.time() - began >= WATCH_SECONDS / 2:
                    continue  # as asked; a server that ends it earlier is not asked hot
            except ForbiddenError as error:
                self._say(error)
                self._version = ""
                pause = refused = min(2 * refused, REFUSED_PAUSE)
            except ApiError as error:
                self._say(error)
                self._version, refused = "", BROKEN_PAUSE  # most often the version is too old to go on from
            except (ApiUnreachableError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                self._say(error)
                refused = BROKEN_PAUSE
            self.begun.set()
            await asyncio.sleep(pause)

    def _say(self, error: Exception) -> None:
        log.debug("watch for the service proxy ended", extra={"path": self._path, "error": str(error)})

    async def _watch(self) -> None:
        if not self._version:
            begin = await self._api.get(self._path, {**self._params, "limit": "1"})
            self._version = str((begin.get("metadata") or {}).get("resourceVersion") or "")
            self._changed("", {})
        self.begun.set()
        query = {**self._params, "resourceVersion": self._version, "allowWatchBookmarks": "true"}
        async for event, obj in _events(self._session, self._api.server + self._path, query):
            self._version = str((obj.get("metadata") or {}).get("resourceVersion") or self._version)
            if event != "BOOKMARK":
                self._changed(event, obj)


async def _events(
    session: aiohttp.ClientSession, url: str, params: Mapping[str, str]
) -> AsyncIterator[tuple[str, Object]]:
    """
    What one watch shows, as type and object, until the server ends it.

    Raises ApiError: the server refuses it or cannot go on.
    """
    timeout = aiohttp.ClientTimeout(total=WATCH_SECONDS + 20, sock_read=None)
    query = {**params, "watch": "true", "timeoutSeconds": str(WATCH_SECONDS)}
    async with session.get(url, params=query, headers={"Accept": "application/json"}, timeout=timeout) as answer:
        if answer.status >= 400:
            error = ForbiddenError if answer.status == 403 else ApiError
            raise error(f"GET {url} (watch): {answer.status} {answer.reason}", status=answer.status)
        async for line in _lines(answer.content):
            event = json.loads(line)
            kind, obj = str(event.get("type")), event.get("object") or {}
            if kind == "ERROR":
                raise ApiError(f"GET {url} (watch): {obj.get('message')}", status=int(obj.get("code") or 500))
            yield kind, obj


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length; aiohttp's own end at 128 KiB, and objects may be larger."""
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
