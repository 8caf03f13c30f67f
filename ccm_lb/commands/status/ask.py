"""What a status is made from, asked of the cluster and of the leader; only read."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

from ccm_lb.commands.status import leader, rows
from ccm_lb.commands.status.rows import Cluster, Leader, Row
from ccm_lb.controller.predicates import Scope
from ccm_lb.errors import ForbiddenError
from ccm_lb.kube.api import KubeApi
from ccm_lb.objects import Service, parse_node, parse_service

_PAGE = "500"


@dataclasses.dataclass(frozen=True)
class Question:
    """What is asked: the cluster, one namespace or all (""), and who leads. `classes` count where the leader does not say its own."""

    kubeconfig: Path | None
    master: str | None
    namespace: str
    leader: leader.Where
    classes: frozenset[str]


@dataclasses.dataclass(frozen=True)
class Status:
    """The answer."""

    rows: tuple[Row, ...]
    leader: Leader
    scope: Scope

    def as_json(self) -> dict[str, Any]:
        """The keys are part of the command line's promise."""
        return {
            "leader": {"identity": self.leader.identity or None, "notAsked": self.leader.silent or None},
            "services": [one.as_json() for one in self.rows],
        }

    @property
    def fine(self) -> bool:
        return all(one.state in rows.FINE for one in self.rows)


async def ask(api: KubeApi, question: Question) -> Status:
    """Raises CCMError where the cluster cannot be asked."""
    told = await leader.ask(api, question.leader)
    cluster = await _cluster(api, question.namespace, warnings=bool(told.silent))
    scope = told.scope or Scope(question.classes)
    now = dt.datetime.now(dt.UTC)

    def age(service: Service) -> float:
        created = service.metadata.creation_timestamp
        return (now - dt.datetime.fromisoformat(created)).total_seconds() if created else 0.0

    return Status(rows.rows(cluster, told, scope, age), told, scope)


async def _cluster(api: KubeApi, namespace: str, *, warnings: bool) -> Cluster:
    scoped = f"/api/v1/namespaces/{namespace}" if namespace else "/api/v1"
    services = [parse_service(one) for one in await _all(api, f"{scoped}/services")]
    nodes = [parse_node(one) for one in await _all(api, "/api/v1/nodes")]
    return Cluster(services, nodes, await _warnings(api, f"{scoped}/events") if warnings else {})


async def _all(api: KubeApi, path: str, **params: str) -> list[Any]:
    """All pages of a list."""
    found: list[Any] = []
    page = {"limit": _PAGE, **params}
    while True:
        answer = await api.get(path, page)
        found += answer.get("items") or ()
        if not (more := answer.get("metadata", {}).get("continue")):
            return found
        page["continue"] = more


async def _warnings(api: KubeApi, path: str) -> dict[str, str]:
    """The last Warning of each Service, by its UID; none where they may not be read."""
    try:
        events = await _all(api, path, fieldSelector="involvedObject.kind=Service,type=Warning")
    except ForbiddenError:
        return {}
    events.sort(key=lambda one: str(one.get("lastTimestamp") or one["metadata"]["creationTimestamp"]))
    return {one["involvedObject"].get("uid", ""): f"{one['reason']}: {one['message']}" for one in events}
