"""
From a backend's answer to what stands in a Service: one patch, and what the user is told of it.

A server without ipMode is found out by its answer: it drops the field, or makes VIP of it.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ccm_lb import annotations, ipmode, portstatus
from ccm_lb.backends.base import LoadBalancerBackend
from ccm_lb.controller import addresses, conditions, desiredstatus, messages, serviceevents
from ccm_lb.controller.conditions import Condition
from ccm_lb.controller.desiredstatus import Circumstances, Draft
from ccm_lb.controller.messages import Notice
from ccm_lb.controller.state import ClusterState
from ccm_lb.controller.writes import ServiceWrites, timestamp
from ccm_lb.dataplane.cluster import kubeproxyversions
from ccm_lb.errors import InvalidError, PortsError
from ccm_lb.ipmode import ServiceProxyHint
from ccm_lb.kube import patches
from ccm_lb.objects import IPMode, Key, LoadBalancerIngress, LoadBalancerStatus, Node, Service

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Policy:
    """
    What is published beyond what a backend answers.

    `api_server` are its addresses. `service_proxy` is asked at each decision, `proxy_versions` (kube-proxy's, by node name) after each
    change of a Node; a node that the latter does not name says its version by itself.
    """

    allowed: frozenset[addresses.Kind] = frozenset()
    hostname_suffix: str = ""
    api_server: tuple[str, ...] = ()
    service_proxy: Callable[[], ServiceProxyHint] = lambda: ServiceProxyHint.UNKNOWN
    proxy_versions: Callable[[], Mapping[str, str]] = dict


class Advice(Protocol):
    """Who looks at what Services publish: `served` after each sync of a Service, `forget` (its UID) when it is gone. Must not raise."""

    def served(self, service: Service) -> None: ...
    def forget(self, uid: str) -> None: ...


class NoAdvice:
    """Looks at nothing."""

    def served(self, service: Service) -> None: ...
    def forget(self, uid: str) -> None: ...


class Publisher:
    """Knows of each Service what its user was told, and of the API server whether it stores ipMode."""

    def __init__(
        self,
        writes: ServiceWrites,
        service_events: serviceevents.ServiceEvents,
        state: ClusterState,
        backend: LoadBalancerBackend[Any],
        policy: Policy,
        advice: Advice,
    ) -> None:
        self._writes, self._service_events, self._state = writes, service_events, state
        self._backend, self._policy, self._advice = backend, policy, advice
        self._told = messages.Told()
        self._nodes: tuple[Node, ...] | None = None
        self._owners, self._old_nodes = addresses.Owners({}), tuple[str, ...]()
        self._decided: dict[str, ServiceProxyHint] = {}  # by UID, with which service proxy in mind
        # By UID, addresses that are not published because a node has them.
        self._clashes: dict[str, tuple[Key, frozenset[str]]] = {}
        self._stores_modes: bool | None = None  # None until an answer showed it
        self._unstored: dict[str, tuple[Key, LoadBalancerStatus]] = {}  # by UID, what the server did not store

    async def draft(self, service: Service, answer: object) -> Draft | None:
        """
        What to publish when the backend answered `answer` to ensure; None if the Service is gone.

        Raises:
            TerminalError: none of the addresses may be published, or an annotation is wrong.
            CCMError: the answer is unusable, or the API server could not be asked.
        """
        around = self._around(service)
        self._decided[service.uid] = around.service_proxy
        ingress = desiredstatus.checked(service, answer).ingress
        self._note_clashes(service, ingress)
        entries, said = desiredstatus.fit(service, ingress, around)
        draft = await self._drafted(service, entries, around)
        return draft and dataclasses.replace(draft, notices=(*draft.notices, *said))

    async def draft_ahead(self, service: Service) -> Draft | None:
        """
        What to publish before the cloud is asked, see `desiredstatus.overtakes`; None, the usual answer: nothing.

        Raises:
            TerminalError: an annotation is wrong.
            CCMError: the API server could not be asked.
        """
        entries = patches.comparable(service.status.load_balancer).ingress
        synced = self._state.synced(service)
        elsewhere = synced is not None and synced.status is None
        if elsewhere or not any(one.ip_mode is IPMode.VIP for one in entries):
            return None
        around = self._around(service)
        return await self._drafted(service, entries, around) if desiredstatus.overtakes(service, around) else None

    async def write_ahead(self, service: Service, draft: Draft) -> Service | None:
        """Bring the Service's status to `draft_ahead`'s; the Service as it is then, None if it is gone. Raises what the API raised."""
        sent, stands = await self._outgoing(service, draft)
        if stands:
            return service
        live = await self._writes.patch(service, patches.status_patch(service.uid, sent))
        if live is not None:
            log.info("published ahead of the cloud", extra={"service": str(service.key), "ingress": _words(sent)})
            self._state.published(live)
            self._learn(service, draft.status, sent, patches.comparable(live.status.load_balancer))
            self._service_events.tell(live, self._told.news(service.uid, _choices(draft), only=messages.CHOSEN))
        return live

    async def _drafted(
        self, service: Service, entries: tuple[LoadBalancerIngress, ...], around: Circumstances
    ) -> Draft | None:
        kept = None
        override = annotations.ip_mode(service)
        if override is not None and not isinstance(override, IPMode) and any(one.ip for one in entries):
            takes = await self._takes(service, entries, override)
            if takes is None:
                return None
            kept = None if takes else self._published_modes(service)
        return desiredstatus.draft(service, entries, around, kept)

    async def stands(self, service: Service, draft: Draft) -> bool:
        """Whether the Service's status is `draft`'s already. Raises what the API raised."""
        _, stands = await self._outgoing(service, draft)
        return stands

    async def write(self, service: Service, draft: Draft, *, quiet: bool) -> Service | None:
        """
        Bring the Service's status to `draft`; the Service as stored, None if it is gone.

        `quiet`: if nothing has to be written, nothing is said. Raises what the API raised.
        """
        sent, stands = await self._outgoing(service, draft)
        stored, changed = patches.comparable(service.status.load_balancer), not stands
        synced = self._state.synced(service)
        # Of a status that somebody edited nobody is told that the right address comes back.
        before = synced.status if synced is not None and synced.status is not None else stored
        said = conditions.serving((), portstatus.errors(sent.ingress))
        entries = conditions.entries(service, said, timestamp(), written_anyway=changed)
        if quiet and (changed or entries):
            quiet = False
            self._service_events.ensuring(service)
        if not quiet:
            self._service_events.ensured(service)
        if changed or entries:
            patch = patches.status_patch(service.uid, sent if changed else None, entries)
            live = await self._writes.patch(service, patch)
            if live is None:
                return None
            service, stored = live, patches.comparable(live.status.load_balancer)
        if changed:
            log.info("published the load balancer", extra={"service": str(service.key), "ingress": _words(sent)})
            self._service_events.tell(service, desiredstatus.moved(before, sent))
        self._learn(service, draft.status, sent, stored)
        news = self._told.news(service.uid, (*draft.notices, *self._of_the_cluster(service, draft.status, sent)))
        if not quiet:
            self._service_events.tell(service, news)
        self._advice.served(service)
        return service

    async def refuse_ports(self, service: Service, error: PortsError) -> None:
        """Say by the condition that the Service is not served because of its ports. Raises what the API raised."""
        await self.say(service, [conditions.not_served(error.ports)])

    async def say(self, service: Service, wanted: Iterable[Condition]) -> Service | None:
        """Set conditions, where they do not stand; the Service as it is then, None if it is gone. Raises what the API raised."""
        entries = conditions.entries(service, wanted, timestamp())
        if not entries:
            return service
        return await self._writes.patch(service, patches.status_patch(service.uid, None, entries))

    def nodes_changed(self, service: Service) -> None:
        """Tell the user of new nodes that ignore what is published."""
        self._look_at_nodes()
        modes = patches.other_modes(patches.comparable(service.status.load_balancer))
        said = self._of_old_nodes(modes)
        self._service_events.tell(service, self._told.news(service.uid, said, only="IPModeIgnored"))

    def decides_otherwise(self, service: Service) -> bool:
        """
        Whether the service proxy is another one than the Service's ipMode was decided with, and that makes a difference.

        Raises what the backend's `traffic` raises.
        """
        now = self._policy.service_proxy()
        before = self._decided.get(service.uid, now)
        if before is now:
            return False
        around, override = self._around(service), annotations.ip_mode(service)
        earlier = dataclasses.replace(around, service_proxy=before)
        for one in [one for one in service.status.load_balancer.ingress if one.ip] or [LoadBalancerIngress()]:
            then, today = (desiredstatus.inputs(service, one, each, override) for each in (earlier, around))
            if ipmode.decide(then) != ipmode.decide(today):
                return True
        return False

    def forget(self, service: Service) -> None:
        """The load balancer of `service` is gone."""
        self._decided.pop(service.uid, None)
        self._advice.forget(service.uid)
        self._clashes.pop(service.uid, None)
        self._unstored.pop(service.uid, None)
        self._told.forget(service.uid)

    def freed(self) -> tuple[Key, ...]:
        """The Services to be looked at again, because a node's address that they could not publish is no node's any more."""
        if not self._clashes:
            return ()  # the usual case; nodes speak up often
        self._look_at_nodes()
        found = [
            (uid, key)
            for uid, (key, ips) in self._clashes.items()
            if any(self._owners.kind(ip) is not addresses.Kind.NODE for ip in ips)
        ]
        for uid, key in found:
            del self._clashes[uid]
            service = self._state.services.get(key)
            if service is not None and service.uid == uid:
                self._state.unsync(service)
        return tuple(key for _, key in found)

    async def recheck(self) -> tuple[Key, ...]:
        """
        The Services to be looked at again, because the API server stores ipMode by now.

        It is asked with one Service, and only if it dropped an ipMode before. Raises what the API raised.
        """
        for uid, (key, wanted) in tuple(self._unstored.items()):
            service = self._state.services.get(key)
            if service is None or service.uid != uid:
                del self._unstored[uid]
                continue
            if not await self._is_stored(service, wanted):
                return ()
            self._stores_modes = True
            break
        found = [self._state.services.get(key) for key, _ in self._unstored.values()]
        self._unstored.clear()
        services = [service for service in found if service is not None]
        for service in services:
            self._state.unsync(service)
        return tuple(service.key for service in services)

    def _around(self, service: Service) -> Circumstances:
        self._look_at_nodes()
        return Circumstances(
            self._backend.traffic(service),
            self._owners,
            self._policy.allowed,
            self._policy.service_proxy(),
            self._backend.honours,
        )

    # ---- what the API server takes

    async def _takes(self, service: Service, entries: tuple[LoadBalancerIngress, ...], mode: str) -> bool | None:
        """Whether the API server takes a value of ipMode that is not known here; None if the Service is gone."""
        tried = tuple(one.model_copy(update={"ip_mode": mode if one.ip else None}) for one in entries)
        patch = patches.status_patch(service.uid, LoadBalancerStatus(ingress=tried))
        try:
            return True if await self._writes.try_patch(service, patch) is not None else None
        except InvalidError as error:
            if "ipMode" not in str(error):
                raise
            return False

    async def _is_stored(self, service: Service, wanted: LoadBalancerStatus) -> bool:
        live = await self._writes.try_patch(service, patches.status_patch(service.uid, wanted))
        if live is None:
            return False
        return patches.stores_modes(wanted, patches.comparable(live.status.load_balancer)) is not False

    def _published_modes(self, service: Service) -> Mapping[str, IPMode | str]:
        synced = self._state.synced(service)
        statuses = [service.status.load_balancer, *([synced.status] if synced and synced.status else [])]
        return {one.ip: one.ip_mode for status in statuses for one in status.ingress if one.ip and one.ip_mode}

    async def _outgoing(self, service: Service, draft: Draft) -> tuple[LoadBalancerStatus, bool]:
        """What to send of a draft, and whether the Service's status is what this server makes of it already."""
        sent = await self._for_this_server(service, draft.status)
        expected = patches.without_modes(sent) if self._stores_modes is False else sent
        return sent, expected == patches.comparable(service.status.load_balancer)

    async def _for_this_server(self, service: Service, wanted: LoadBalancerStatus) -> LoadBalancerStatus:
        """What to send: where a host name stands ready, no address that a server without ipMode would publish as VIP."""
        name = desiredstatus.hostname(service, self._policy.hostname_suffix)
        if not name or not patches.other_modes(wanted):
            return wanted
        if self._stores_modes is None:
            self._stores_modes = await self._is_stored(service, wanted)
        return wanted if self._stores_modes else desiredstatus.with_hostname(wanted, name)

    def _learn(
        self, service: Service, wanted: LoadBalancerStatus, sent: LoadBalancerStatus, stored: LoadBalancerStatus
    ) -> None:
        shown = patches.stores_modes(sent, stored)
        self._stores_modes = self._stores_modes if shown is None else shown
        if patches.other_modes(wanted) and self._stores_modes is False:
            self._unstored[service.uid] = (service.key, wanted)
        else:
            self._unstored.pop(service.uid, None)

    # ---- what the cluster does with it

    def _of_the_cluster(self, service: Service, wanted: LoadBalancerStatus, sent: LoadBalancerStatus) -> list[Notice]:
        modes = patches.other_modes(wanted)
        if service.uid in self._unstored:
            hostnames = [one.hostname for one in sent.ingress if one.hostname and one not in wanted.ingress]
            return [messages.not_stored(modes, hostnames)]
        return self._of_old_nodes(modes)

    def _of_old_nodes(self, modes: Mapping[str, IPMode | str]) -> list[Notice]:
        return [messages.ignored(modes.values(), self._old_nodes)] if modes and self._old_nodes else []

    def _note_clashes(self, service: Service, ingress: Sequence[LoadBalancerIngress]) -> None:
        ips = frozenset(one.ip for one in ingress if one.ip and self._owners.kind(one.ip) is addresses.Kind.NODE)
        self._clashes.pop(service.uid, None)
        if ips and addresses.Kind.NODE not in self._policy.allowed:
            self._clashes[service.uid] = (service.key, ips)

    def _look_at_nodes(self) -> None:
        """Take note of what the nodes say; made anew only when one of them changed."""
        eligible = self._state.eligible_nodes()
        if eligible is self._nodes:
            return
        nodes = self._state.nodes()
        self._nodes = eligible
        self._owners = addresses.Owners({node.name: node.ips for node in nodes}, self._policy.api_server)
        self._old_nodes = kubeproxyversions.ignoring(
            {**kubeproxyversions.versions(nodes), **self._policy.proxy_versions()}
        )


def _choices(draft: Draft) -> list[Notice]:
    return [one for one in draft.notices if one.reason == messages.CHOSEN]


def _words(status: LoadBalancerStatus) -> str:
    return ",".join(f"{one.ip or one.hostname}/{one.ip_mode or '-'}" for one in status.ingress)
