"""Writes to Services at the Kubernetes API, and what is learned from each answer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from ccm_lb.controller.state import ClusterState
from ccm_lb.errors import ConflictError, InvalidError, NotFoundError, NotLeaderError
from ccm_lb.kube import patches
from ccm_lb.objects import Key, Service, parse_service


def timestamp() -> str:
    """The time as objects of the API have it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Services(Protocol):
    """What is read and written of Services at the Kubernetes API, as plain JSON."""

    async def get_service(self, key: Key) -> Mapping[str, Any]:
        """The live object. Raises NotFoundError."""
        ...

    async def patch_service_status(self, key: Key, patch: patches.Patch, *, dry_run: bool = False) -> Mapping[str, Any]:
        """
        The object after a strategic-merge patch of its status; `dry_run`: as it would be, nothing is stored.

        Raises NotFoundError; InvalidError if the UID is another, or the server does not take it.
        """
        ...


class Fence(Protocol):
    def holds(self) -> bool:
        """Whether the Lease is surely held right now."""
        ...


class ServiceWrites:
    """Nothing is sent without the Lease; every answer goes into the state."""

    def __init__(self, api: Services, fence: Fence, state: ClusterState) -> None:
        self._api, self._fence, self._state = api, fence, state

    async def patch(self, service: Service, patch: patches.Patch) -> Service | None:
        """The Service after the patch, which is also taken note of; None if the Service of this UID is gone, noted as well."""
        live = await self._send(service, lambda: self._api.patch_service_status(service.key, patch))
        if live is not None:
            self._state.see(live)
        return live

    async def try_patch(self, service: Service, patch: patches.Patch) -> Service | None:
        """As `patch`, without storing anything: what the Service would be. Raises InvalidError for what the server does not take."""
        return await self._send(service, lambda: self._api.patch_service_status(service.key, patch, dry_run=True))

    async def _send(self, service: Service, send: Callable[[], Awaitable[Mapping[str, Any]]]) -> Service | None:
        self.check_fence()
        known = self._state.services.version(service.key)
        try:
            return parse_service(await send())
        except NotFoundError:
            self._state.vanished(service.key, known)
            return None
        except (InvalidError, ConflictError):
            current = await self.refresh(service.key)
            if current is None or current.uid != service.uid or (current.deleting and not current.has_finalizer):
                return None  # no finalizer can be put on a Service under deletion
            raise

    async def refresh(self, key: Key) -> Service | None:
        """Ask the API server for the live Service and take note of the answer; what is known now, None if there is none."""
        known = self._state.services.version(key)
        try:
            live = parse_service(await self._api.get_service(key))
        except NotFoundError:
            self._state.vanished(key, known)
            return self._state.services.get(key)
        self._state.see(live)
        return live

    def check_fence(self) -> None:
        """Raise NotLeaderError unless the Lease is surely held."""
        if not self._fence.holds():
            raise NotLeaderError("the Lease is not held any more")
