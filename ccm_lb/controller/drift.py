"""
What is changed, emptied or deleted in the cloud behind the controller's back: looked for, told, and repaired.

All load balancers are read in pages, now and then, beside the workers. What is suspected there is read once more by a worker, since a
list may be old, and then repaired by the same ensure that made it. What nobody changed costs no request of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from ccm_lb.backends.actual import ActualLoadBalancer, Difference
from ccm_lb.backends.base import Reads
from ccm_lb.controller import messages
from ccm_lb.controller.comparison import UNKNOWN, Comparison
from ccm_lb.controller.contests import Contests, Pace
from ccm_lb.controller.plan import Synced
from ccm_lb.controller.serviceevents import ServiceEvents, words
from ccm_lb.controller.state import ClusterState
from ccm_lb.errors import NotLeaderError
from ccm_lb.objects import Key, Service

log = logging.getLogger(__name__)

ONE_BY_ONE = 1.0  # seconds between two load balancers where a backend cannot read all of them at once
FIRST_LOOK = 10.0  # seconds after which nobody waits for the pages at the start any more
_JITTER = (0.8, 0.95)  # of the period; the rest is for the look itself
_LONGEST = 3600.0  # seconds


class Mode(enum.StrEnum):
    """What is done about it."""

    REPAIR = "repair"
    REPORT = "report"
    OFF = "off"


@dataclasses.dataclass(frozen=True)
class DriftPolicy:
    """`period` is in seconds: within so many a change is found."""

    mode: Mode = Mode.REPAIR
    period: float = 300.0

    @property
    def pace(self) -> Pace:
        """A few times it is put back when it is found; a look finds it at most once each period, so the pauses are longer than that."""
        longest = max(_LONGEST, 4 * self.period)
        return Pace(free=2, first=2 * self.period, longest=longest, calm=longest)


class Observer(Protocol):
    """What metrics want to know."""

    def drifted(self, action: str) -> None:
        """A load balancer was found changed, and was `repaired` or `reported`."""
        ...

    def contested(self, what: str) -> None: ...


class Drift:
    """What is known of each load balancer that was found changed; for the worker that looks at it."""

    def __init__(
        self,
        comparison: Comparison,
        state: ClusterState,
        events: ServiceEvents,
        observer: Observer,
        policy: DriftPolicy,
    ) -> None:
        self._comparison, self._state, self._events, self._observer = comparison, state, events, observer
        self._mode = policy.mode
        self._contests = Contests(policy.pace)
        self._reported: dict[str, frozenset[Difference]] = {}  # by UID

    def wait(self, service: Service) -> float:
        """Seconds until the load balancer is to be put back, because the cloud changed it again and again. The user is told once."""
        now = asyncio.get_running_loop().time()
        wait = self._contests.wait(service.uid, now)
        if self._contests.news(service.uid, "drift"):
            self._observer.contested("drift")
            self._events.tell(service, [messages.drifted_again()])
        return wait

    async def examine(self, service: Service) -> tuple[Difference, ...]:
        """
        How the load balancer differs; nothing if all is well, or if it cannot be read now: the next look finds it again.

        Raises NotLeaderError.
        """
        if self._comparison.backend.reads is Reads.NOTHING and self._mode is Mode.REPAIR:
            return (UNKNOWN,)  # the ensure that follows compares by itself
        try:
            return await self._comparison.read(service)
        except NotLeaderError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a backend raises; the Service itself is served
            log.warning(
                "what is said to be changed in the cloud cannot be read; it is looked at again after the drift period",
                extra={"service": str(service.key), "reason": words(error)},
            )
            return ()

    @property
    def repairs(self) -> bool:
        return self._mode is Mode.REPAIR

    def dismissed(self, service: Service) -> None:
        """All was well."""
        self._contests.withdraw(service.uid)

    def repaired(self, service: Service, differing: Sequence[Difference], *, changed: bool) -> None:
        """Ensure was called; `changed`: it wrote something to the cloud."""
        if changed:
            self._comparison.forget(service.uid)
            self._contests.answered(service.uid, asyncio.get_running_loop().time())
            self._observer.drifted("repaired")
            self._events.tell(service, [messages.drifted([one for one in differing if one != UNKNOWN], repaired=True)])
            log.warning("what was changed in the cloud is put back", extra=_fields(service, differing))
            return
        self._contests.withdraw(service.uid)
        if differing != (UNKNOWN,):
            self._comparison.accept(service, tuple(differing))

    def news(self, service: Service, differing: Sequence[Difference]) -> bool:
        """Whether it is to be told that the load balancer differs so and is left so; `differing` may be nothing."""
        found = frozenset(differing)
        if self._reported.get(service.uid, frozenset()) == found:
            return False
        self._reported.pop(service.uid, None)
        if found:
            self._reported[service.uid] = found
            self._observer.drifted("reported")
            self._events.tell(service, [messages.drifted(differing, repaired=False)])
            log.warning("the cloud has something else than is wanted", extra=_fields(service, differing))
        return True

    def is_reported(self, service: Service) -> bool:
        return service.uid in self._reported

    def forget(self, uid: str) -> None:
        """The load balancer is gone."""
        self._comparison.forget(uid)
        self._reported.pop(uid, None)


class Look:
    """Reads what the cloud has, beside the workers; `unknown` is told of load balancers whose Service is not known here."""

    def __init__(
        self,
        state: ClusterState,
        comparison: Comparison,
        drift: Drift,
        policy: DriftPolicy,
        unknown: Callable[[Sequence[ActualLoadBalancer]], Awaitable[None]] | None = None,
    ) -> None:
        self._state, self._comparison, self._drift, self._policy = state, comparison, drift, policy
        self._unknown = unknown

    @property
    def shows_at_start(self) -> bool:
        """Whether Services that are verified after a restart are to be left to `keep`."""
        return self._policy.mode is not Mode.OFF and self._comparison.backend.reads is Reads.ALL

    async def keep(self, waiting: Iterable[Service], enqueue: Callable[[Key], None]) -> None:
        """
        Look until this is cancelled. `waiting` are Services that are to be verified after a restart: they are enqueued as soon as it is
        shown what the cloud has of them, or is clear that it will not be.
        """
        await self._first(waiting, enqueue)
        while self._policy.mode is not Mode.OFF:
            await asyncio.sleep(self._policy.period * random.uniform(*_JITTER))  # noqa: S311 - no secret
            try:
                await self.look(enqueue)
            except Exception as error:  # noqa: BLE001 - whatever a backend raises; the work goes on
                log.warning(
                    "the cloud cannot be looked at for what was changed there; repeated after the drift period",
                    extra={"reason": words(error)},
                )

    async def _first(self, waiting: Iterable[Service], enqueue: Callable[[Key], None]) -> None:
        rest = {service.uid: service.key for service in waiting}
        try:
            if rest and self.shows_at_start:
                async with asyncio.timeout(FIRST_LOOK):
                    async for page in self._comparison.backend.read_load_balancers():
                        for one in page:
                            if one.owner_uid in rest:
                                self._comparison.show(one)
                                enqueue(rest.pop(one.owner_uid))
        except Exception as error:  # noqa: BLE001 - whatever a backend raises; then each is asked for by itself
            log.info("load balancers cannot be read in pages; each is asked for", extra={"reason": words(error)})
        for key in rest.values():
            enqueue(key)

    async def look(self, enqueue: Callable[[Key], None]) -> None:
        """Compare once, and enqueue what differs. Raises as the backend does."""
        before = {
            service.uid: (service.key, synced)
            for service in self._state.services
            if (synced := self._state.settled(service)) is not None and synced.status is not None
        }
        reads = self._comparison.backend.reads
        if reads is Reads.ALL:
            await self._look_at_all(before, enqueue)
            return
        for key, synced in before.values():
            await asyncio.sleep(ONE_BY_ONE)
            service = self._unchanged(key, synced)
            if service is not None and (reads is Reads.NOTHING or await self._comparison.read(service)):
                self._suspect(service, enqueue)

    async def _look_at_all(self, before: dict[str, tuple[Key, Synced]], enqueue: Callable[[Key], None]) -> None:
        rest, unknown = dict(before), []
        known = {service.uid for service in self._state.services}
        async for page in self._comparison.backend.read_load_balancers():
            for one in page:
                if one.owner_uid in rest:
                    await self._compare(*rest.pop(one.owner_uid), one, enqueue)
                elif one.owner_uid not in known:
                    unknown.append(one)
                await asyncio.sleep(0)  # thousands of them are no reason for a worker to wait
        for key, synced in rest.values():
            await self._compare(key, synced, None, enqueue)
        if self._unknown is not None:
            await self._unknown(unknown)

    async def _compare(
        self, key: Key, synced: Synced, found: ActualLoadBalancer | None, enqueue: Callable[[Key], None]
    ) -> None:
        service = self._unchanged(key, synced)
        if service is None:
            return  # it was written since, or is to be: what was read is old
        differing = await self._comparison.differences(service, found)
        if differing or self._drift.is_reported(service):
            self._suspect(service, enqueue)

    def _unchanged(self, key: Key, synced: Synced) -> Service | None:
        service = self._state.services.get(key)
        return service if service is not None and self._state.settled(service) is synced else None

    def _suspect(self, service: Service, enqueue: Callable[[Key], None]) -> None:
        self._state.suspect(service)
        enqueue(service.key)


def _fields(service: Service, differing: Sequence[Difference]) -> dict[str, str]:
    return {"service": str(service.key), "uid": service.uid, "differences": "; ".join(map(str, differing))}
