"""
Load balancers of this cluster that no Service wants any more: found, counted, and removed if that is asked for.

A Service leaves one behind when its finalizer is taken off while no controller runs, or when etcd is restored from before it was made. The
order makes it safe. The cloud is read first, then all Services, as they are now and not from a cache: a load balancer is made after its
Service, so that a Service which is not there later is gone, and its UID never comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ccm_lb.backends.actual import ActualLoadBalancer
from ccm_lb.controller import predicates
from ccm_lb.controller.serviceevents import words
from ccm_lb.controller.state import ClusterState
from ccm_lb.errors import NotFoundError
from ccm_lb.objects import CLEANUP_FINALIZER, Key, ObjectMeta, Service, parse_service

log = logging.getLogger(__name__)

Delete = Callable[[Service], Awaitable[None]]
"""A backend's `ensure_load_balancer_deleted`."""


class Services(Protocol):
    """What is read of the Services; the list holds metadata only."""

    async def list_service_metadata(self, *, newest: bool = False) -> list[Mapping[str, Any]]: ...
    async def get_service(self, key: Key) -> Mapping[str, Any]: ...


class Observer(Protocol):
    """What metrics want to know."""

    def orphans(self, count: int) -> None:
        """So many are there."""
        ...

    def orphan_deleted(self) -> None: ...


class Orphan(NamedTuple):
    """One of them; `why` is a sentence without its end."""

    load_balancer: ActualLoadBalancer
    why: str

    def service(self) -> Service:
        """What is known of its Service, for the backend that is to delete the load balancer."""
        namespace, _, name = self.load_balancer.service.partition("/")
        return Service(
            metadata=ObjectMeta(name=name or "unknown", namespace=namespace, uid=self.load_balancer.owner_uid)
        )


async def find(found: Iterable[ActualLoadBalancer], services: Services) -> list[Orphan]:
    """
    Those of `found`, which was read before this is called, that no Service wants. Of no other cluster's, and of none without an owner.

    Raises what the API server raises: a list that is not complete is none.
    """
    owned = [one for one in found if one.owner_uid]
    if not owned:
        return []
    listed = {metadata["uid"]: metadata for metadata in await services.list_service_metadata(newest=True)}
    orphans = []
    for one in owned:
        metadata = listed.get(one.owner_uid)
        if metadata is None:
            orphans.append(Orphan(one, f"its Service {one.service or one.owner_uid} is gone"))
        elif CLEANUP_FINALIZER not in metadata.get("finalizers", ()):
            orphans += await _let_go(one, Key(metadata["namespace"], metadata["name"]), services)
    return orphans


async def _let_go(one: ActualLoadBalancer, key: Key, services: Services) -> list[Orphan]:
    try:
        service = parse_service(await services.get_service(key))
    except NotFoundError:
        return []  # just now; the next time says so
    if service.uid != one.owner_uid or predicates.may_want_it(service):
        return []
    return [Orphan(one, f"its Service {key} is of type {service.spec.type} and has no finalizer")]


class Sweep:
    """Told of the load balancers whose Service is not known here, each time after the cloud was read."""

    def __init__(
        self, services: Services, delete: Delete, state: ClusterState, observer: Observer, grace: float
    ) -> None:
        """`grace` is in seconds, since an orphan was first seen by this process; 0: none is removed."""
        self._services, self._delete, self._state, self._observer = services, delete, state, observer
        self._grace = grace
        self._since: dict[str, float] = {}  # by the load balancer's id

    async def __call__(self, unknown: Sequence[ActualLoadBalancer]) -> None:
        """Raises what the API server raises."""
        leaving = self._state.uids_left_behind()
        orphans = await find([one for one in unknown if one.owner_uid not in leaving], self._services)
        now = asyncio.get_running_loop().time()
        for one in orphans:
            if one.load_balancer.id not in self._since:
                log.warning("a load balancer is orphaned", extra=_fields(one))
        self._since = {one.load_balancer.id: self._since.get(one.load_balancer.id, now) for one in orphans}
        if self._grace:
            for one in orphans:
                if now - self._since[one.load_balancer.id] >= self._grace:
                    await self._remove(one)
        self._observer.orphans(len(self._since))

    async def _remove(self, orphan: Orphan) -> None:
        uid = orphan.load_balancer.owner_uid
        if any(service.uid == uid for service in self._state.services):
            return  # its Service is back at it: what is unlikely is no reason to work on one twice at a time
        try:
            await self._delete(orphan.service())
        except Exception as error:  # noqa: BLE001 - whatever a backend raises; the next look comes
            log.warning(
                "an orphan could not be deleted, and is tried again", extra={**_fields(orphan), "reason": words(error)}
            )
            return
        self._since.pop(orphan.load_balancer.id)
        self._observer.orphan_deleted()
        log.warning("an orphaned load balancer was deleted", extra=_fields(orphan))


def _fields(orphan: Orphan) -> dict[str, str]:
    one = orphan.load_balancer
    return {
        "load_balancer": one.id,
        "service": one.service,
        "uid": one.owner_uid,
        "addresses": ", ".join(one.addresses),
        "why": orphan.why,
    }
