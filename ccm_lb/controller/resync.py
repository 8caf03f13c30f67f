"""
The check that nothing was missed: what a list shows, held against what is known.

A watch can lose things: after a gap it shows what exists and never what vanished, and a type change hides a Service from it. So
metadata is listed now and then, and whatever differs is asked for, one object at a time. It repairs; it never destroys: a list may
be older than what the watch delivered, so only a GET says that something is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from ccm_lb.controller.cache import version
from ccm_lb.controller.serviceevents import words
from ccm_lb.controller.state import ClusterState
from ccm_lb.errors import ApiError, ApiUnreachableError, NotFoundError
from ccm_lb.objects import CLEANUP_FINALIZER, Key

log = logging.getLogger(__name__)

RELIST_PAUSE = 2.0  # seconds after the end of a list of the watch until what vanished before it is looked for
FRESH = 2.0  # seconds after its lists for which a comparison is as good as a new one
RETRY_PAUSE = 10.0  # seconds after a failed resync
FILL_PATIENCE = 5.0  # seconds without an event after which the watch is not waited for at the start
MAX_GETS = 16  # how many objects are asked for at the same time

T = TypeVar("T")
Metadata = Mapping[str, Any]


class Objects(Protocol):
    """What a resync reads; the lists hold metadata only."""

    async def get_service(self, key: Key) -> Mapping[str, Any]: ...
    async def get_node(self, name: str) -> Mapping[str, Any]: ...
    async def list_service_metadata(self) -> list[Metadata]: ...
    async def list_node_metadata(self) -> list[Metadata]: ...


class Sink(Protocol):
    """
    Who is told what a GET answered: the controller, which treats it as it treats an event.

    `known` is the newest resourceVersion that had been seen when the GET was sent.
    """

    def found(self, resource: str, obj: Mapping[str, Any]) -> None: ...
    def vanished_service(self, key: Key, known: int) -> None: ...
    def vanished_node(self, name: str, known: int) -> None: ...

    async def recheck(self) -> None:
        """Ask what no object shows: whether the API server can do more than it could."""
        ...


class Resync:
    """Compares every `period` seconds, and soon after each list of the watch."""

    def __init__(self, state: ClusterState, objects: Objects, sink: Sink, period: float) -> None:
        self._state = state
        self._objects = objects
        self._sink = sink
        self._period = period
        self._now = asyncio.Event()
        self._arrived = asyncio.Event()  # set by each event of the watch
        self._timer: asyncio.TimerHandle | None = None
        self._listed_at = (
            -math.inf
        )  # when the lists of the last comparison that succeeded were asked for, in the loop's time

    def seen(self) -> None:
        """An event of the watch came."""
        self._arrived.set()

    def soon(self, pause: float = RELIST_PAUSE) -> None:
        """Compare when `pause` seconds have passed without another call of this."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(pause, self._now.set)

    async def keep(self) -> None:
        """Compare for as long as this runs; a failure waits for the next time."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), self._period)
            self._now.clear()
            try:
                await self.compare()
                await self._sink.recheck()
            except (ApiError, ApiUnreachableError) as error:
                log.warning("the resync failed and is repeated", extra={"reason": words(error), "pause": RETRY_PAUSE})
                self.soon(RETRY_PAUSE)

    async def fill(self) -> None:
        """
        Return when the watch has delivered the nodes, and the Services with our finalizer, that a list shows; then compare once.

        A watch that brings nothing for a while is not waited for: comparing asks for what is missing.

        Raises ApiError, ApiUnreachableError.
        """
        services, nodes = await self._lists()
        keys = {key for key, metadata in services.items() if CLEANUP_FINALIZER in metadata.get("finalizers", ())}
        with contextlib.suppress(TimeoutError):
            while any(not self._state.services.version(key) for key in keys) or any(
                not self._state.node_version(name) for name in nodes
            ):
                self._arrived.clear()
                await asyncio.wait_for(self._arrived.wait(), FILL_PATIENCE)
        await self.compare()

    async def catch_up(self) -> None:
        """
        Compare, unless that was done a moment ago: a replica that leads as soon as it is ready has just filled its cache.

        Raises ApiError, ApiUnreachableError.
        """
        if asyncio.get_running_loop().time() - self._listed_at > FRESH:
            await self.compare()

    async def compare(self) -> None:
        """
        Ask for every object that may have vanished or changed unseen, and for Services off the watch that carry our finalizer.

        Raises ApiError, ApiUnreachableError.
        """
        began = asyncio.get_running_loop().time()
        services, nodes = await self._lists()
        unsure = [key for key, metadata in services.items() if self._is_unseen(key, metadata)]
        unsure += [service.key for service in self._state.services if service.key not in services]
        unsure_nodes = [name for name, at in nodes.items() if at > self._state.node_version(name)]
        unsure_nodes += [name for name in self._state.node_names() if name not in nodes]
        log.debug("resync", extra={"unsure_services": len(unsure), "unsure_nodes": len(unsure_nodes)})
        await _each(self._ask_for_node, unsure_nodes)
        await _each(self._ask_for_service, unsure)
        self._listed_at = began

    def _is_unseen(self, key: Key, metadata: Metadata) -> bool:
        if self._state.services.get(key) is None:
            return CLEANUP_FINALIZER in metadata.get(
                "finalizers", ()
            )  # the watch does not show it, for example since its type changed
        return version(metadata["resourceVersion"]) > self._state.services.version(key)

    async def _lists(self) -> tuple[dict[Key, Metadata], dict[str, int]]:
        services, nodes = await asyncio.gather(
            self._objects.list_service_metadata(), self._objects.list_node_metadata()
        )
        by_key = {Key(metadata["namespace"], metadata["name"]): metadata for metadata in services}
        return by_key, {metadata["name"]: version(metadata["resourceVersion"]) for metadata in nodes}

    async def _ask_for_service(self, key: Key) -> None:
        known = self._state.services.version(key)
        try:
            self._sink.found("services", await self._objects.get_service(key))
        except NotFoundError:
            self._sink.vanished_service(key, known)

    async def _ask_for_node(self, name: str) -> None:
        known = self._state.node_version(name)
        try:
            self._sink.found("nodes", await self._objects.get_node(name))
        except NotFoundError:
            self._sink.vanished_node(name, known)


async def _each(ask: Callable[[T], Coroutine[Any, Any, None]], things: Iterable[T]) -> None:
    semaphore = asyncio.Semaphore(MAX_GETS)

    async def one(thing: T) -> None:
        async with semaphore:
            await ask(thing)

    await asyncio.gather(*(one(thing) for thing in things))
