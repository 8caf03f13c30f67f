"""
From events to work: what enters the queue and when, and the workers that empty it.

Events arrive on every replica and keep its state warm; work is queued and done only between `work` and `stop`, that is while the
Lease is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from ccm_lb.controller import cache, predicates
from ccm_lb.controller.plan import Operation
from ccm_lb.controller.reconcile import Reconciler
from ccm_lb.controller.serviceevents import words
from ccm_lb.controller.state import ClusterState
from ccm_lb.controller.work import Outcome, Work
from ccm_lb.controller.workqueue import QueueClosedError, Workqueue
from ccm_lb.errors import NotLeaderError, RetryAfterError, TerminalError
from ccm_lb.objects import Key, Node, Service, parse_node, parse_service

log = logging.getLogger(__name__)

_SPREAD = 0.1  # seconds between two Services of those that are all looked at again
_SPREAD_OVER = 300.0  # seconds within which they all are


class Controller:
    """Owns the queue; what happens in the cluster comes in by `on_event`, `found` and `vanished_*`. `at_work` tells of it."""

    def __init__(
        self,
        state: ClusterState,
        reconciler: Reconciler,
        queue: Workqueue[Key],
        node_sync_debounce: float,
        nodes_synced: Callable[[float], None],
    ) -> None:
        """`node_sync_debounce` is in seconds; `nodes_synced` is told how many passed from a node change until all have it."""
        self._state = state
        self._reconciler = reconciler
        self._queue = queue
        self.at_work = Work(queue)
        self._debounce = node_sync_debounce
        self._nodes_synced = nodes_synced
        self._nodes_changed_at: float | None = None
        self._sweeping: set[Key] = set()  # Services that do not have the latest nodes yet
        self._put_off: set[Key] = set()  # Services in a delay that only some of what they may need waits for
        self._working = False
        self._sweep: asyncio.TimerHandle | None = None

    # ---- what happens in the cluster

    def on_event(self, resource: str, event: str | None, obj: Mapping[str, Any]) -> None:
        """An event of the watch; `event` is None for an object of a list. What cannot be read is said and changes nothing."""
        try:
            if resource == "nodes":
                self._on_node(event, parse_node(obj))
            else:
                self._on_service(event, parse_service(obj))
        except (ValidationError, AttributeError, KeyError, TypeError) as error:
            log.error(
                "an object of the API server cannot be read", extra={"resource": resource, "reason": words(error)}
            )

    def found(self, resource: str, obj: Mapping[str, Any]) -> None:
        """A live object, as a GET returned it."""
        self.on_event(resource, None, obj)

    def vanished_service(self, key: Key, known: int) -> None:
        """A GET, sent when `known` was the newest resourceVersion seen, says that there is no such Service."""
        self._state.vanished(key, known)
        self._queue_if_needed(key)

    def vanished_node(self, name: str, known: int) -> None:
        """A GET, sent when `known` was the newest resourceVersion seen, says that there is no such Node."""
        if self._state.node_vanished(name, known):
            self._sweep_soon()
        self._queue_freed()

    async def recheck(self) -> None:
        """Queue the Services that an upgrade of the cluster lets be published better. Raises ApiError, ApiUnreachableError."""
        if self._working:
            with contextlib.suppress(NotLeaderError):
                for key in await self._reconciler.recheck():
                    self._queue_if_needed(key)

    def service_proxy_changed(self) -> None:
        """Look at the ipMode of all Services again, little by little. Most of them need nothing, and cost nothing then."""
        if self._working:
            # Those that wait for their turn or for the end of a delay will see it then.
            keys = [one.key for one in self._state.services if self._queue.settled(one.key)]
            for number, key in enumerate(keys):
                self._queue.add_after(key, number * min(_SPREAD, _SPREAD_OVER / len(keys)))

    def _on_service(self, event: str | None, service: Service) -> None:
        key, known = service.key, self._state.services.get(service.key)
        if event == "DELETED":
            self._on_service_deleted(service, known)
            return
        if not self._state.see(service):
            return
        if _is_news(known, service) or self._queue.idle(key):
            self._queue_if_needed(key)

    def _on_service_deleted(self, service: Service, known: Service | None) -> None:
        at = cache.version(service.metadata.resource_version)
        if known is not None and (known.uid != service.uid or at < self._state.services.version(service.key)):
            return  # an echo of an older object of this name
        if known is not None and self._state.at_stake(known):
            # With a field selector a change of the type looks like this, too.
            self._state.doubt(service.key)
            self._queue_if_needed(service.key)
        else:
            self._state.gone(service.key, at)

    def _on_node(self, event: str | None, node: Node) -> None:
        if event == "DELETED":
            changed = self._state.node_gone(node.name, cache.version(node.metadata.resource_version))
        else:
            changed = self._state.see_node(node)
        if changed:
            self._sweep_soon()
        self._queue_freed()  # also for what changes no target: a node without traffic has its addresses, too

    def _queue_freed(self) -> None:
        if self._working:
            for key in self._reconciler.freed():
                self._queue.add(key)  # now: the retry of a Service that needs a change is minutes away

    # ---- the queue

    def _queue_if_needed(self, key: Key) -> None:
        if self._working and self._state.operation(key) is not Operation.NOTHING:
            self._queue.add(key)

    def _sweep_soon(self) -> None:
        """Queue the Services with outdated nodes once for all node changes of the next moments; the first one is not put off."""
        if self._working and self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(self._debounce, self._sweep_now)
            self._nodes_changed_at = self._nodes_changed_at or loop.time()

    def _sweep_now(self) -> None:
        self._sweep = None
        self._sweeping.update(self._state.outdated())
        log.debug("nodes changed", extra={"services": len(self._sweeping)})
        for key in self._sweeping:
            # Otherwise its own turn comes, with the nodes of then.
            if self._queue.idle(key) or key in self._put_off:
                self._queue.add(key)
        self._swept()

    def _swept(self, key: Key | None = None) -> None:
        """`key` has the latest nodes, or needs none any more."""
        if key is not None:
            self._sweeping.discard(key)
        if self._nodes_changed_at is not None and not self._sweeping and self._sweep is None:
            self._nodes_synced(asyncio.get_running_loop().time() - self._nodes_changed_at)
            self._nodes_changed_at = None

    # ---- work

    async def work(self, workers: int) -> None:
        """Reconcile what needs it, `workers` Services at a time, until `stop`; queues everything known at the start."""
        self._working = True
        self._state.take_over()
        look = self._reconciler.look
        # What was served before is verified, and the cloud shows many at once.
        waiting = [one for one in self._state.services if look.shows_at_start and self._is_to_verify(one)]
        later = {service.key for service in waiting}
        for service in self._state.services:
            if service.key not in later:
                self._queue_if_needed(service.key)
        looking = asyncio.create_task(look.keep(waiting, self._queue_if_needed), name="drift")
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._worker())
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def _is_to_verify(self, service: Service) -> bool:
        served = service.has_finalizer and bool(service.status.load_balancer.ingress)
        return served and self._state.operation(service.key) is Operation.ENSURE

    def stop(self) -> None:
        """Take on no more work: `work` returns when what is being worked on is finished."""
        self._working = False
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._queue.shut_down()

    async def _worker(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueClosedError:
                return
            try:
                await self._work_on(key)
            finally:
                self._queue.done(key)

    async def _work_on(self, key: Key) -> None:
        before = self._state.services.get(key)
        self._put_off.discard(key)
        try:
            pause = await self._reconciler.reconcile(key)
        except NotLeaderError:
            self._queue.add_rate_limited(key)  # until the elector ends the process or renews the Lease
        except RetryAfterError as error:
            log.info(
                "the cloud needs more time", extra={"service": str(key), "delay": error.delay, "reason": words(error)}
            )
            self.at_work.ended(key, Outcome.WAITING, words(error))
            self._queue.add_after(key, error.delay)
        except TerminalError as error:
            log.error("the Service needs a change", extra={"service": str(key), "reason": words(error)})
            self.at_work.ended(key, Outcome.REFUSED, words(error))
            self._queue.add_at_longest(key)
            self._follow_nodes(key)
            self._swept(key)
        except Exception as error:
            self.at_work.ended(key, Outcome.FAILED, words(error))
            delay = self._queue.add_rate_limited(key)
            log.warning("will be retried", exc_info=error, extra={"service": str(key), "delay": delay})
        else:
            self._queue.forget(key)
            if not self._is_refused(key):
                self.at_work.ended_well(key)
            if self._needs_more(key, before, restoring=not pause):
                self._queue.add(key)
                return
            if pause:
                self._queue.add_after(key, pause)
                self._put_off.add(key)
            if self._is_refused(key):
                self._follow_nodes(key)
            self._swept(key)

    def _is_refused(self, key: Key) -> bool:
        service = self._state.services.get(key)
        return service is not None and self._state.refused(service, asyncio.get_running_loop().time()) > 0

    def _follow_nodes(self, key: Key) -> None:
        """The Service was refused, its nodes are not: they are followed through the delay, also those that changed just now."""
        self._put_off.add(key)
        if self._state.lacks_nodes(key):
            self._queue.add(key)

    def _needs_more(self, key: Key, before: Service | None, *, restoring: bool) -> bool:
        """
        Whether the nodes, the cloud, or the Service since it was `before`, changed while it was worked on.

        An event does not say so where the answer to our own patch was newer: it is old when it comes. A Service that is as it was, and was
        worked on with success, needs nothing more whatever a decision would say: that would be a loop.
        """
        operation = self._state.operation(key, restoring=restoring)
        if operation in (Operation.UPDATE_NODES, Operation.VERIFY):
            return True
        return operation is not Operation.NOTHING and self._state.services.get(key) is not before


def _is_news(known: Service | None, service: Service) -> bool:
    """
    Whether a change is one that a waiting retry should not wait for.

    Our own finalizer and status come back as changes too; they are none, or each failure would be its own reason to try again.
    """
    if known is None or known.deleting != service.deleting or (known.has_finalizer and not service.has_finalizer):
        return True
    return predicates.load_balancer_inputs(known) != predicates.load_balancer_inputs(service)
