"""
One Service, brought to where its spec says: read, decide, call the backend, patch, record.

The order of finalizer, cloud call, status and events is upstream's (controllers/service/controller.go), so that whoever reads
events or objects sees what the Go controller shows. A crash after any line leaves a state from which the next call goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends import changes
from ccm_lb.backends.base import EventRecorder, LoadBalancerBackend
from ccm_lb.controller import conditions, endings, messages, plan, predicates, serviceevents
from ccm_lb.controller.comparison import Comparison
from ccm_lb.controller.contention import Contention
from ccm_lb.controller.desiredstatus import Draft
from ccm_lb.controller.drift import Drift, DriftPolicy, Look
from ccm_lb.controller.endings import Ending
from ccm_lb.controller.orphans import Sweep
from ccm_lb.controller.plan import Operation, Ours, Synced
from ccm_lb.controller.publish import Advice, NoAdvice, Policy, Publisher
from ccm_lb.controller.state import ClusterState
from ccm_lb.controller.writes import Fence, Services, ServiceWrites, timestamp
from ccm_lb.errors import (
    CCMError,
    ImplementedElsewhereError,
    NotFoundError,
    NotLeaderError,
    PortsError,
    RetryAfterError,
    TerminalError,
)
from ccm_lb.kube import patches
from ccm_lb.objects import Key, LoadBalancerStatus, Node, Service

log = logging.getLogger(__name__)

REFUSED_PAUSE = 300.0
"""Seconds for which a Service that needs a change is left as it is, but for its nodes: the longest pause of the workqueue."""


class Observer(Protocol):
    """What metrics want to know: how long a reconcile took, how old a Service was when it got its first address, what is contested."""

    def reconciled(self, operation: str, outcome: str, seconds: float) -> None: ...
    def addressed(self, seconds: float) -> None: ...
    def contested(self, what: str) -> None: ...
    def drifted(self, action: str) -> None: ...


class _SyncError(CCMError):
    """A failure with upstream's words before it; its cause decides about the retry."""


@dataclasses.dataclass(frozen=True)
class Dependencies:
    """Whom the reconciler talks to; `field_manager` is the name under which the API server records our writes."""

    api: Services
    backend: LoadBalancerBackend[Any]
    events: EventRecorder
    fence: Fence
    observer: Observer
    field_manager: str
    policy: Policy = dataclasses.field(default_factory=Policy)
    advice: Advice = dataclasses.field(default_factory=NoAdvice)
    drift: DriftPolicy = dataclasses.field(default_factory=DriftPolicy)
    sweep: Sweep | None = None


class Reconciler:
    """Reconciles a Service by its key; the workqueue sees to it that no key is reconciled twice at a time."""

    def __init__(self, deps: Dependencies, state: ClusterState) -> None:
        self._api = deps.api
        self._backend = deps.backend
        self._observer = deps.observer
        self._field_manager = deps.field_manager
        self._service_events = serviceevents.ServiceEvents(deps.events)
        self._state = state
        self._writes = ServiceWrites(deps.api, deps.fence, state)
        self._publisher = Publisher(self._writes, self._service_events, state, deps.backend, deps.policy, deps.advice)
        self._contention = Contention(deps.api, self._service_events, state, deps.observer, deps.field_manager)
        self._comparison = Comparison(deps.backend, state)
        self._drift = Drift(self._comparison, state, self._service_events, deps.observer, deps.drift)
        self.look = Look(state, self._comparison, self._drift, deps.drift, deps.sweep)
        self._unsaid: set[str] = set()  # UIDs of Services that waited before this process began, and wait still
        self.freed = self._publisher.freed

    async def reconcile(self, key: Key) -> float:
        """
        Do what the Service `key` needs; the seconds after which the rest is to be done, 0 if nothing was put off.

        Raises:
            RetryAfterError, TerminalError: as the backend raised them; the user has been told.
            NotLeaderError: nothing more was sent.
            CCMError: failed; the user has been told; try again after a backoff.
        """
        began = time.monotonic()
        operation, outcome = Operation.NOTHING, "error"
        try:
            if self._state.is_doubtful(key):
                await self._writes.refresh(key)
                self._state.asked(key)
            await self._remove_left_behind(key)
            operation, pause = await self._due(key)
            service = self._state.services.get(key)
            if service is not None and operation is not Operation.NOTHING:
                log.debug("reconciling", extra={"service": str(key), "operation": operation.value})
                self._contention.begins(service, operation)
                await self._perform(operation, service)
                await self._remove_left_behind(key)  # it may have vanished under our hands
            outcome = "success"
            return pause
        except RetryAfterError:
            outcome = "retry_after"
            raise
        except TerminalError:
            outcome = "terminal"
            raise
        finally:
            if operation is not Operation.NOTHING:
                self._observer.reconciled(operation.value, outcome, time.monotonic() - began)

    async def recheck(self) -> Sequence[Key]:
        """The Services to be looked at again because the cluster was upgraded. Raises CCMError: it cannot be asked."""
        return await self._publisher.recheck()

    async def _due(self, key: Key) -> tuple[Operation, float]:
        """What is to be done now, and the seconds until something else is that is needed, too."""
        operation, service = self._operation(key), self._state.services.get(key)
        if service is None:
            return operation, 0.0
        if operation is Operation.VERIFY:
            pause = self._drift.wait(service)
        else:
            pause = await self._contention.wait(service, operation)
        if operation is Operation.ENSURE and self._state.lacks_nodes(key):
            refused = self._state.refused(service, asyncio.get_running_loop().time())
            if refused:
                return Operation.UPDATE_NODES, max(pause, refused)
        if not pause:
            return operation, 0.0
        log.debug("put off", extra={"service": str(key), "operation": operation.value, "pause": pause})
        other = self._state.operation(key, restoring=False)
        return (other if operation is Operation.RESTORE else Operation.NOTHING), pause

    def _operation(self, key: Key) -> Operation:
        operation, service = self._state.operation(key), self._state.services.get(key)
        settled = operation in (Operation.NOTHING, Operation.UPDATE_NODES, Operation.RESTORE, Operation.VERIFY)
        if service is not None and settled and self._publisher.decides_otherwise(service):
            self._state.unsync(service)
            operation = self._state.operation(key)
        return operation

    async def _perform(self, operation: Operation, service: Service) -> None:
        steps = {
            Operation.ENSURE: self._ensure,
            Operation.RESTORE: self._restore,
            Operation.UPDATE_NODES: self._update,
            Operation.CLEANUP: self._cleanup,
            Operation.PAUSE: self._pause,
            Operation.VERIFY: self._verify,
        }
        try:
            await steps[operation](service)
        except ImplementedElsewhereError:
            nodes = self._state.node_set()
            self._state.record(service, Synced(predicates.load_balancer_inputs(service), nodes, None))
        except Exception as error:  # noqa: BLE001 - whatever a backend raises is shown to the user and retried
            try:
                self._fail(service, error)
            except TerminalError:
                if operation is Operation.ENSURE:
                    await self._keep_serving(service)
                raise

    async def _keep_serving(self, service: Service) -> None:
        """
        What is refused of a Service leaves the load balancer that it has; only its nodes go on to be those of the cluster.

        Raises RetryAfterError, NotLeaderError, and CCMError if that failed, which is to be tried again sooner than the Service itself.
        """
        self._state.refuse(service, asyncio.get_running_loop().time() + REFUSED_PAUSE)
        if predicates.is_served(service) and (
            self._state.synced(service) is None or self._state.lacks_nodes(service.key)
        ):
            try:
                with contextlib.suppress(ImplementedElsewhereError):
                    await self._update(service)
            except _ToldError as error:
                raise CCMError(serviceevents.words(error)) from error

    # ---- the operations

    async def _ensure(self, service: Service, *, again: bool = False) -> None:
        """`again`: the Service is as it was synced; only what has to be changed is news."""
        # After a restart every Service is verified against the cloud. That is no news, and thousands of events would say it.
        # What it finds different is told as usual.
        first = not self._state.attempted(service) or service.uid in self._unsaid
        verifying = (first or again) and service.has_finalizer
        self._unsaid.discard(service.uid)
        if not verifying:
            self._service_events.ensuring(service)
        if not service.has_finalizer:
            # Before the first cloud call: a crash in between then leaves a Service that is visited again, not a
            # load balancer that nobody remembers.
            with _prefix("failed to add load balancer cleanup finalizer"):
                live = await self._writes.patch(service, patches.finalizer_patch(service.uid))
            if live is None or live.deleting or not predicates.wants_load_balancer(live, self._state.scope):
                return  # it changed under our hands: the change is known and queued
            service = live
        self._state.begin(service)
        draining = self._drains(service)
        nodes, node_set = self._state.eligible_nodes(draining=draining), self._state.node_set(draining=draining)
        if not nodes and not verifying:
            self._service_events.no_nodes(service)
        ahead = await self._publish_ahead(service)
        if ahead is None:
            return
        if verifying and ahead is not service:
            verifying = False
            self._tell_late(ahead, nodes)
        service = ahead
        draft, verifying = await self._answered(service, nodes, verifying=verifying)
        if draft is None:
            return
        with _prefix("failed to update load balancer status"):
            stored = await self._publisher.write(service, draft, quiet=verifying)
        if stored is None:
            return
        # A wiped status that is written again is no first address.
        status = patches.comparable(stored.status.load_balancer)
        new = self._state.synced(service) is None and not service.status.load_balancer.ingress and status.ingress
        if new and service.metadata.creation_timestamp:
            self._observer.addressed(_age(service.metadata.creation_timestamp))
        inputs = predicates.load_balancer_inputs(service)
        self._state.record(service, Synced(inputs, node_set, status, draining, conditions.said(stored)))

    def _drains(self, service: Service) -> bool:
        """Whether the load balancer's own health check sees nodes that are about to go, so that nobody has to take them out."""
        with _prefix("failed to ensure load balancer"):
            traffic = self._backend.traffic(service)
        return traffic is not None and traffic.probes_ask_kube_proxy

    async def _publish_ahead(self, service: Service) -> Service | None:
        """The Service with the modes that nodes have to know before the cloud is asked; None if the cloud is not to be asked any more."""
        with _prefix("failed to ensure load balancer"):
            draft = await self._publisher.draft_ahead(service)
        if draft is None:
            return service
        with _prefix("failed to update load balancer status"):
            live = await self._publisher.write_ahead(service, draft)
        wanted = live is not None and not live.deleting and predicates.wants_load_balancer(live, self._state.scope)
        return live if wanted else None

    async def _answered(self, service: Service, nodes: Sequence[Node], *, verifying: bool) -> tuple[Draft | None, bool]:
        """What to publish, None if the Service is gone; and whether there is still nothing to tell."""
        if verifying and (shown := await self._comparison.answer(service)) is not None:
            draft = await self._publisher.draft(service, shown)
            # The pages may be older than a change that was cut off: they are believed where the status says the same.
            if draft is None or await self._publisher.stands(service, draft):
                return draft, True
        answer, verifying = await self._ask_cloud(service, nodes, verifying=verifying)
        return await self._publisher.draft(service, answer), verifying

    async def _ask_cloud(self, service: Service, nodes: Sequence[Node], *, verifying: bool) -> tuple[object, bool]:
        """The backend's answer, and whether there is still nothing to tell: what was verified had not to be changed."""
        with _prefix("failed to ensure load balancer"), changes.noted() as changed:
            try:
                answer = await self._ensure_in_cloud(service, nodes, changed)
            except RetryAfterError:
                if verifying and not changed.any:
                    self._unsaid.add(service.uid)
                raise
            finally:
                if verifying and changed.any:
                    verifying = False
                    self._tell_late(service, nodes)
        return answer, verifying

    def _tell_late(self, service: Service, nodes: Sequence[Node]) -> None:
        """What is told before the work begins, of a Service that was only to be verified and was found different."""
        self._service_events.ensuring(service)
        if not nodes:
            self._service_events.no_nodes(service)

    async def _ensure_in_cloud(self, service: Service, nodes: Sequence[Node], changed: changes.Changes) -> object:
        ccm_annotations.parse(service)  # what is wrong reaches no backend, so that its load balancer stays as it is
        try:
            return await self._backend.ensure_load_balancer(service, nodes)
        except PortsError as error:
            await self._publisher.refuse_ports(service, error)
            raise
        except RetryAfterError as error:
            pause = self._contention.cloud_pause(service) if changed.any else 0.0
            raise RetryAfterError(str(error), max(error.delay, pause)) from error

    async def _verify(self, service: Service) -> None:
        """Look at what may have been changed in the cloud, and put it back; what ensure leaves as it is was no such change."""
        differing = await self._drift.examine(service)
        if differing and self._drift.repairs:
            with changes.noted() as changed:
                try:
                    await self._ensure(service, again=True)
                except Exception:
                    if changed.any:
                        self._drift.repaired(service, differing, changed=True)
                    raise
            self._drift.repaired(service, differing, changed=changed.any)
            return
        self._state.cleared(service)
        if not differing:
            self._drift.dismissed(service)
        if self._drift.news(service, differing):
            said = conditions.drifted(messages.differences(differing) if differing else "")
            live = await self._publisher.say(service, [said])
            synced = self._state.synced(service)
            if live is not None and synced is not None:
                self._state.record(service, dataclasses.replace(synced, conditions=conditions.said(live)))

    async def _restore(self, service: Service) -> None:
        synced = self._state.synced(service)
        undone = plan.undone(service, synced)
        if synced is None or not undone:
            return
        status = synced.status if Ours.STATUS in undone else None
        entries = (
            conditions.restoring(service, synced.conditions or (), timestamp()) if Ours.CONDITIONS in undone else ()
        )
        patch = patches.restore_patch(service.uid, status, entries, finalizer=Ours.FINALIZER in undone)
        with _prefix("failed to restore what was changed"):
            live = await self._writes.patch(service, patch)
        if live is None:
            return
        # What the server itself makes of it is no other one's change.
        stored = patches.comparable(live.status.load_balancer) if status is not None else synced.status
        said = conditions.said(live) if entries else synced.conditions
        self._state.record(service, dataclasses.replace(synced, status=stored, conditions=said))
        log.info("put back what was changed", extra={"service": str(service.key), "what": ",".join(sorted(undone))})

    async def _update(self, service: Service) -> None:
        synced = self._state.synced(service)
        draining = synced is not None and synced.draining
        nodes, node_set = self._state.eligible_nodes(draining=draining), self._state.node_set(draining=draining)
        try:
            with changes.noted() as changed:
                await self._backend.update_load_balancer(service, nodes)
        except (RetryAfterError, NotLeaderError, ImplementedElsewhereError):
            raise
        except Exception as error:
            self._service_events.update_failed(service, nodes, error)
            self._state.unsync(service)  # the next attempt is a full ensure, which also makes what is gone
            raise _ToldError(serviceevents.words(error)) from error
        if synced is None:
            # What its addresses are made from was refused since this process began; they are looked after all the same.
            synced = Synced(None, node_set, patches.comparable(service.status.load_balancer), draining)
            if not changed.any:
                self._state.record(service, synced)
                return
        self._state.record(service, dataclasses.replace(synced, nodes=node_set))
        self._service_events.nodes_updated(service, nodes)
        self._publisher.nodes_changed(service)
        log.info("updated the load balancer's nodes", extra={"service": str(service.key), "nodes": len(nodes)})

    async def _cleanup(self, service: Service) -> None:
        with _prefix("failed to delete load balancer"):
            end = endings.ending(service, self._backend.honours)
        found = None
        with _prefix("failed to check if load balancer exists before cleanup"):
            with contextlib.suppress(ImplementedElsewhereError):
                found = await self._backend.get_load_balancer(service)
            if found is None and not await self._finalizer_is_ours(service):
                self._state.disclaim(service)
                log.debug("the finalizer of another controller is left alone", extra={"service": str(service.key)})
                return
        if found is not None and end is Ending.DELETE:
            self._service_events.deleting(service)
        # Also where none was found: a half-made load balancer can be invisible to the look-up and still be there.
        with _prefix("failed to delete load balancer"):
            await self._end(service, end)
        with _prefix("failed to remove load balancer cleanup finalizer"):
            clear = self._status_is_ours(service, found)
            self._state.cleaned(service)  # nothing is left to be lost, whatever becomes of the Service now
            self._contention.cleaned(service)
            self._unsaid.discard(service.uid)
            said = conditions.removals(conditions.standing(service))
            patch = patches.release_patch(service.uid, clear_status=clear, conditions=said)
            live = await self._writes.patch(service, patch)
        self._forget(service)
        if live is not None and live.deleting and not live.metadata.finalizers:
            self._state.released(live)
        self._service_events.ended(service, end)
        log.info(end.done, extra={"service": str(service.key), "uid": service.uid})

    async def _end(self, service: Service, end: Ending) -> None:
        """Nothing in the cloud is this Service's any more, unless it is to be left alone."""
        with contextlib.suppress(ImplementedElsewhereError):
            if end is Ending.DELETE:
                await self._backend.ensure_load_balancer_deleted(service)
            elif end is Ending.RELEASE:
                await self._backend.release_load_balancer(service)

    async def _pause(self, service: Service) -> None:
        # What was written so far may be changed by hand meanwhile: when the pause ends, all of it is verified.
        self._state.unsync(service)
        said = conditions.paused(service, ccm_annotations.PAUSED)
        with _prefix("failed to say that the load balancer is paused"):
            await self._publisher.say(service, [said])
        self._service_events.paused(service, said.message)
        log.info("left alone, as its annotation asks", extra={"service": str(service.key)})

    async def _remove_left_behind(self, key: Key) -> None:
        """Delete what Services left in the cloud that disappeared without waiting for their clean-up."""
        for service in self._state.left_behind(key):
            self._writes.check_fence()
            end = endings.of_vanished(service, self._backend.honours)
            if end is Ending.DELETE:
                self._service_events.deleting(service)
            try:
                await self._end(service, end)
            except (RetryAfterError, NotLeaderError):
                raise
            except Exception as error:
                self._service_events.delete_failed(service, error)
                if isinstance(error, TerminalError):
                    raise
                raise CCMError(serviceevents.words(error)) from error
            self._service_events.ended(service, end)
            self._state.removed(service)
            self._forget(service)
            log.info(end.done, extra={"service": str(key), "uid": service.uid, "vanished": True})

    def _forget(self, service: Service) -> None:
        self._publisher.forget(service)
        self._drift.forget(service.uid)

    # ---- whose is it

    async def _finalizer_is_ours(self, service: Service) -> bool:
        """
        Whether the clean-up finalizer, which other controllers use by the same name, is this one's to remove.

        It is on a Service that this controller serves or has served; on one of a foreign class the API server's record decides.
        """
        if predicates.in_scope(service, self._state.scope) or self._state.synced(service) is not None:
            return True
        try:
            live = await self._api.get_service(service.key)
        except NotFoundError:
            return True  # nothing is there to be taken from anybody
        return patches.finalizer_set_by(live["metadata"].get("managedFields", []), self._field_manager)

    def _status_is_ours(self, service: Service, found: LoadBalancerStatus | None) -> bool:
        published = service.status.load_balancer
        if not published.ingress:
            return False
        if predicates.in_scope(service, self._state.scope):
            return True
        # The Service is another controller's now, and what is published may be its address already.
        return found is not None and {one.ip for one in found.ingress} == {one.ip for one in published.ingress}

    # ---- failures

    def _fail(self, service: Service, error: Exception) -> NoReturn:
        """Tell the user, then raise what the controller acts on: the cause of a prefixed error, if that says how to retry."""
        cause = error.__cause__ if isinstance(error, _SyncError) else error
        if isinstance(cause, NotLeaderError):
            raise cause
        if isinstance(cause, RetryAfterError):
            if service.uid not in self._unsaid:
                self._service_events.waiting(service, cause)
            raise cause
        if not isinstance(error, _ToldError):
            self._service_events.sync_failed(service, error)
        if isinstance(cause, TerminalError):
            raise cause
        raise CCMError(serviceevents.words(error)) from cause


class _ToldError(_SyncError):
    """A failure that the user has been told in words of its own."""


@contextlib.contextmanager
def _prefix(said: str) -> Iterator[None]:
    """Upstream's words before whatever goes wrong inside."""
    try:
        yield
    except ImplementedElsewhereError:
        raise
    except Exception as error:
        raise _SyncError(f"{said}: {serviceevents.words(error)}") from error


def _age(timestamp: str) -> float:
    return max(0.0, (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(timestamp)).total_seconds())
