"""`ccm-lb plan`: what would be called for the Services of the cluster, or of a manifest that is not applied yet. Nothing is written."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from ccm_lb.backends.base import Transport
from ccm_lb.commands import cloud
from ccm_lb.commands.cloud import Beside
from ccm_lb.controller import endings, predicates
from ccm_lb.controller.capable import Capable
from ccm_lb.controller.endings import Ending
from ccm_lb.controller.predicates import Scope
from ccm_lb.errors import CCMError, NotFoundError, RetryAfterError
from ccm_lb.http.guard import Guard, WriteRefusedError
from ccm_lb.kube.api import MERGE, KubeApi
from ccm_lb.kube.cluster import NODES, SERVICES, Cluster
from ccm_lb.kube.connect import connect
from ccm_lb.objects import LoadBalancerStatus, Node, Service, parse_node, parse_service
from ccm_lb.redaction import Secrets, yaml_problem
from ccm_lb.settings.config import Config

log = logging.getLogger(__name__)

_PAGE = "500"


class Action(enum.StrEnum):
    """What would be done for one Service."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    RELEASE = "release"
    PUBLISH = "publish"  # the cloud is right, and the Service does not say so
    NOTHING = "nothing"
    UNKNOWN = "unknown"


_SIGNS = {"create": "+", "update": "~", "delete": "-", "release": "-", "publish": "~", "nothing": " ", "unknown": "!"}


@dataclasses.dataclass(frozen=True)
class Step:
    """One Service. `calls` are those that were refused: a backend is stopped at its first write, and what follows depends on the answer."""

    service: str
    action: Action
    reason: str
    calls: tuple[str, ...] = ()
    beside: Beside | None = None

    def as_json(self) -> dict[str, Any]:
        """The keys are part of the command line's promise."""
        return {
            "service": self.service,
            "action": self.action.value,
            "reason": self.reason,
            "firstCalls": list(self.calls),
            "cloud": self.beside and self.beside.as_json(),
        }


def lines(steps: Sequence[Step]) -> Iterable[str]:
    """The same for people: what would be done, and a sum."""
    for one in steps:
        if one.action is not Action.NOTHING:
            yield f"{_SIGNS[one.action]} {one.action} {one.service}: {one.reason}"
            for call in one.calls:
                yield f"    first call: {call}"
    counts = [(action, sum(one.action is action for one in steps)) for action in Action]
    said = ", ".join(f"{count} {action}" for action, count in counts if count)
    yield f"{len(steps)} Service{'' if len(steps) == 1 else 's'}: {said or 'nothing to do'}; nothing was written"


def journal(steps: Sequence[Step]) -> None:
    """The same for the log: one line for each Service of which something would be done."""
    for one in steps:
        if one.action is not Action.NOTHING:
            fields = {"service": one.service, "action": one.action.value, "reason": one.reason}
            log.info("would be done", extra={**fields, **({"calls": list(one.calls)} if one.calls else {})})
    log.info("dry run: nothing was written", extra={"services": len(steps), "exit_code": exit_code(steps)})


def exit_code(steps: Sequence[Step]) -> int:
    """Terraform's: 0 nothing is to be done, 2 something is, 1 of one it cannot be said."""
    actions = {one.action for one in steps}
    if Action.UNKNOWN in actions:
        return 1
    return 2 if actions - {Action.NOTHING} else 0


async def plan(config: Config, file: Path | None, namespace: str, secrets: Secrets) -> list[Step]:
    """Raises CCMError where cluster or cloud cannot be asked, ConfigError for a wrong setting or a file that is none."""
    wanted = _manifests(file) if file is not None else None
    async with contextlib.AsyncExitStack() as stack:
        api = await connect(
            config.kubeconfig,
            config.master,
            user_agent=f"ccm-lb/{version('ccm-lb')}",
            field_manager="ccm-lb-plan",
            secrets=secrets,
        )
        stack.push_async_callback(api.close)
        guards: list[Guard] = []

        def guard(inner: Transport) -> Transport:
            guards.append(Guard(inner))
            return guards[0]

        identity = await cloud.cluster_id(config, Cluster(api))
        backend, silent = await stack.enter_async_context(cloud.opened(config, identity, secrets, guard))
        if silent:
            raise CCMError(f"the cloud cannot be asked: {silent}")
        nodes = [parse_node(one) for one in await _all(api, NODES)]
        found = await _all(api, SERVICES) if wanted is None else [await _tried(api, one, namespace) for one in wanted]
        scope = Scope(frozenset(config.load_balancer_class), config.handle_unclassed)
        planner = Planner(backend, guards[0], nodes, scope)
        services = sorted(map(parse_service, found), key=lambda one: one.key)
        return [await planner.step(one) for one in services if predicates.concerns_us(one, scope)]


@dataclasses.dataclass(frozen=True)
class Planner:
    """Asks the backend to do it, one Service after the other; `guard` is its transport."""

    backend: Capable
    guard: Guard
    nodes: Sequence[Node]
    scope: Scope

    async def step(self, service: Service) -> Step:
        """Never raises for what the backend or the Service's annotations raise: then it is not known what would be done."""
        self.guard.refused()
        try:
            if predicates.is_paused(service):
                return Step(str(service.key), Action.NOTHING, "it is paused")
            if predicates.needs_cleanup(service, self.scope):
                return await self._ended(service)
            if service.deleting:
                return Step(str(service.key), Action.NOTHING, "it is being deleted, and nothing of it is left")
            return await self._ensured(service)
        except RetryAfterError as error:
            return Step(str(service.key), Action.NOTHING, f"the cloud is still at work: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a backend raises
            return Step(str(service.key), Action.UNKNOWN, cloud.words(error), self.guard.refused())

    async def _ended(self, service: Service) -> Step:
        ending = endings.ending(service, self.backend.honours)
        try:
            if ending is Ending.RELEASE:
                await self.backend.release_load_balancer(service)
            else:
                await self.backend.ensure_load_balancer_deleted(service)
        except WriteRefusedError:
            action = Action.RELEASE if ending is Ending.RELEASE else Action.DELETE
            return Step(str(service.key), action, "the Service has no more use for it", self.guard.refused())
        return Step(str(service.key), Action.PUBLISH, "nothing is left in the cloud; the finalizer is taken off")

    async def _ensured(self, service: Service) -> Step:
        traffic = self.backend.traffic(service)
        eligible = predicates.eligible_nodes(self.nodes, draining=traffic is not None and traffic.probes_ask_kube_proxy)
        try:
            answer = await self.backend.ensure_load_balancer(service, eligible)
        except WriteRefusedError:
            calls = self.guard.refused()
        else:
            return _published(service, answer)
        beside = await cloud.beside(self.backend, service, eligible)
        there = beside.found if not beside.silent else await self.backend.get_load_balancer(service)
        differing = "; ".join(map(str, beside.differences)) or "the load balancer is not as the Service asks"
        action = Action.UPDATE if there is not None else Action.CREATE
        reason = differing if action is Action.UPDATE else "it has no load balancer"
        return Step(str(service.key), action, reason, calls, beside)


def _published(service: Service, answer: LoadBalancerStatus) -> Step:
    """The cloud needs no change: whether the Service's status names the addresses, and its finalizer guards them."""
    shown = {one.ip or one.hostname for one in service.status.load_balancer.ingress}
    if shown != {one.ip or one.hostname for one in answer.ingress}:
        return Step(str(service.key), Action.PUBLISH, "the Service's status has other addresses than the load balancer")
    if not service.has_finalizer:
        return Step(str(service.key), Action.PUBLISH, "the finalizer is missing")
    return Step(str(service.key), Action.NOTHING, "all is as it is wanted")


# ---- the Services


async def _all(api: KubeApi, path: str) -> list[Any]:
    found: list[Any] = []
    page = {"limit": _PAGE}
    while True:
        answer = await api.get(path, page)
        found += answer.get("items") or ()
        if not (more := answer.get("metadata", {}).get("continue")):
            return found
        page["continue"] = more


async def _tried(api: KubeApi, manifest: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """What the API server would make of the manifest: with its defaults, refused where it would refuse it, and not stored."""
    metadata = manifest["metadata"]
    services = f"/api/v1/namespaces/{metadata.get('namespace') or namespace}/services"
    body = {**manifest, "metadata": {**metadata, "namespace": metadata.get("namespace") or namespace}}
    one = f"{services}/{metadata['name']}"
    try:
        await api.get(one)
    except NotFoundError:
        return await api.post(services, body, dry_run=True)
    return await api.patch(one, body, MERGE, dry_run=True)


def _manifests(file: Path) -> list[Mapping[str, Any]]:
    """The Services of a file; other kinds are no concern of this."""
    try:
        documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise CCMError(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise CCMError(f"{file}: is not valid YAML: {yaml_problem(error)}") from None
    found: list[Mapping[str, Any]] = []
    for one in documents:
        items = one.get("items") or [] if isinstance(one, dict) and one.get("kind") == "List" else [one]
        found += [item for item in items if isinstance(item, dict) and item.get("kind") == "Service"]
    if nameless := [
        one for one in found if not (isinstance(one.get("metadata"), dict) and one["metadata"].get("name"))
    ]:
        raise CCMError(f"{file}: a Service has no metadata.name: {sorted(nameless[0])}")
    if not found:
        raise CCMError(f"{file}: has no Service")
    return found
