"""
Those who undo what is done for a Service: when they are answered, and what its user is told of them.

A second controller, a tool that rewrites the status or strips finalizers, two parties that change a Service in turns, a cloud that keeps
nothing: each gets its answer at once, and if it goes on, after growing pauses. Other things that the Service needs do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any, Protocol

from ccm_lb.controller import conditions, messages, plan, predicates, serviceevents
from ccm_lb.controller.contests import Contests, Pace
from ccm_lb.controller.plan import Operation, Ours
from ccm_lb.controller.state import ClusterState
from ccm_lb.errors import ApiError, ApiUnreachableError
from ccm_lb.kube import patches
from ccm_lb.objects import CLEANUP_FINALIZER, Key, Service

UNDONE = Pace()
# People and tools change a Service several times in a row; and who ends the quarrel should not wait for minutes.
CHANGED = Pace(free=20, longest=60.0, calm=15.0)
# A cloud may need several requests, one after the other, for one change.
CLOUD = Pace(free=10, calm=60.0)

# Where the API server's record says who wrote it.
_STATUS = ("f:status", "f:loadBalancer")
_FINALIZER = ("f:metadata", "f:finalizers", f'v:"{CLEANUP_FINALIZER}"')
_CONDITIONS = ("f:status", "f:conditions", f'k:{{"type":"{conditions.SERVING}"}}')
_UNDONE = {
    Ours.STATUS: (messages.STATUS_CHANGED, _STATUS),
    Ours.FINALIZER: (messages.FINALIZER_TAKEN, _FINALIZER),
    Ours.CONDITIONS: (messages.CONDITIONS_CHANGED, _CONDITIONS),
}
_PAUSED = ("f:status", "f:conditions", f'k:{{"type":"{conditions.PAUSED}"}}')


class Services(Protocol):
    """The live object, with its record of who wrote what."""

    async def get_service(self, key: Key) -> Mapping[str, Any]: ...


class Observer(Protocol):
    """What metrics want to know: what of a Service became contested."""

    def contested(self, what: str) -> None: ...


class Contention:
    """Asked before each operation (`wait`), told when one begins and ends."""

    def __init__(
        self,
        api: Services,
        service_events: serviceevents.ServiceEvents,
        state: ClusterState,
        observer: Observer,
        field_manager: str,
    ) -> None:
        self._api, self._service_events, self._state = api, service_events, state
        self._observer, self._field_manager = observer, field_manager
        self._undone, self._changed, self._cloud = Contests(UNDONE), Contests(CHANGED), Contests(CLOUD)

    async def wait(self, service: Service, operation: Operation) -> float:
        """Seconds until `operation` is to begin, because its like was needed too often; 0 usually. The user is told once."""
        uid, now = service.uid, _now()
        if operation is Operation.RESTORE:
            wait = self._undone.wait(uid, now)
            for ours in sorted(plan.undone(service, self._state.synced(service))):
                if self._undone.news(uid, ours):
                    await self._tell(service, ours, *_UNDONE[ours])
            return wait
        if operation is Operation.PAUSE:
            pausing = _pausing(service)
            wait = self._undone.wait(pausing, now)
            if self._undone.news(pausing, Ours.CONDITIONS):
                await self._tell(service, Ours.CONDITIONS, messages.CONDITIONS_CHANGED, _PAUSED)
            return wait
        if self._is_put_on_again(service, operation):
            wait = self._undone.wait(uid, now)
            if self._undone.news(uid, operation):
                await self._tell(service, Ours.FINALIZER, messages.FINALIZER_PUT, _FINALIZER)
            return wait
        if operation is Operation.ENSURE and self._changed.differs(uid, _inputs(service)):
            wait = self._changed.wait(uid, now)
            if self._changed.news(uid, operation):
                await self._tell(service, "service", messages.SERVICE_CHANGED, ())
            return wait
        return 0.0

    def begins(self, service: Service, operation: Operation) -> None:
        """`operation` is about to be carried out."""
        if operation is Operation.PAUSE:
            self._undone.answered(_pausing(service), _now())
        if operation is Operation.RESTORE or self._is_put_on_again(service, operation):
            self._undone.answered(service.uid, _now())
        if operation is Operation.ENSURE and self._changed.differs(service.uid, _inputs(service)):
            self._changed.answered(service.uid, _now(), _inputs(service))

    def cleaned(self, service: Service) -> None:
        """Nothing is left in the cloud of `service`."""
        self._changed.note(service.uid, Operation.CLEANUP)

    def cloud_pause(self, service: Service) -> float:
        """
        Seconds until `service` is to be ensured again, after its load balancer was written and is not ready yet.

        More than 0 where the same was written many times: what is written does not stay. The user is told once.
        """
        key: Hashable = (service.uid, _inputs(service), self._state.node_set())
        self._cloud.answered(key, _now())
        wait = self._cloud.wait(key, _now())
        if self._cloud.news(key, "cloud"):
            self._observer.contested("cloud")
            self._service_events.tell(service, [messages.undone_by_the_cloud()])
        return wait

    def _is_put_on_again(self, service: Service, operation: Operation) -> bool:
        """Whether the last thing done was a clean-up as well: a finalizer that was taken off is there again."""
        return (
            operation is Operation.CLEANUP
            and not service.deleting
            and not self._changed.differs(service.uid, Operation.CLEANUP)
        )

    async def _tell(self, service: Service, what: str, words: str, path: tuple[str, ...]) -> None:
        self._observer.contested(str(what))
        try:
            record = (await self._api.get_service(service.key))["metadata"].get("managedFields", [])
        except (ApiError, ApiUnreachableError):
            record = []
        named = patches.writers(record, self._field_manager, *path)
        writers = named or patches.writers(record, self._field_manager)
        self._service_events.tell(service, [messages.contested(words, writers, certain=bool(named))])


def _pausing(service: Service) -> Hashable:
    """That a deletion waits is said at once, however often it was said before that the Service is paused."""
    return service.uid, Operation.PAUSE, service.deleting


def _inputs(service: Service) -> int:
    return hash(predicates.load_balancer_inputs(service))


def _now() -> float:
    return asyncio.get_running_loop().time()
