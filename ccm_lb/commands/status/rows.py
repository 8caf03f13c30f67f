"""What `ccm-lb status` says of each Service, from what the cluster shows and the leader knows: a decision, made of these alone."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ccm_lb.commands import tables
from ccm_lb.controller import conditions, predicates
from ccm_lb.controller.predicates import Scope
from ccm_lb.controller.work import Outcome
from ccm_lb.objects import Node, Service

WIDTH = 100
"""Columns of the table, if nobody asks for more."""

_LIMITS = {"SERVICE": 36, "STATE": 8, "ADDRESS": 22, "IPMODE": 6, "NODES": 7, "AGE": 4, "RETRY": 5}
_UNKNOWN = "?"


class State(enum.StrEnum):
    """One word for a Service."""

    SERVED = "served"
    DEGRADED = "degraded"  # it serves, but not as the Service asks
    PENDING = "pending"
    WAITING = "waiting"  # for the cloud
    FAILING = "failing"
    PAUSED = "paused"
    DELETING = "deleting"


FINE = frozenset({State.SERVED, State.PAUSED})
"""What its user asked for."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """What the holder of the Lease knows of one Service; times are in seconds, None where it does not wait so."""

    outcome: str = ""
    reason: str = ""
    failures: int = 0
    queued: float | None = None
    working: float | None = None
    retry_in: float | None = None


@dataclasses.dataclass(frozen=True)
class Leader:
    """The holder of the Lease, and what it said; `silent` is why it said nothing."""

    identity: str
    scope: Scope | None = None
    progress: Mapping[str, Progress] = dataclasses.field(default_factory=dict)
    silent: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """One Service. `addresses` are (address, ipMode); `nodes` those that get traffic, of `all_nodes`; `progress` None: nobody said."""

    service: str
    state: State
    addresses: tuple[tuple[str, str], ...]
    nodes: int
    all_nodes: int
    age: float
    load_balancer_class: str
    reason: str
    progress: Progress | None

    def as_json(self) -> dict[str, Any]:
        """The keys are part of the command line's promise; null is what is not so, or what only the leader knows and was not asked."""
        known = self.progress
        return {
            "service": self.service,
            "state": self.state.value,
            "addresses": [{"address": address, "ipMode": mode or None} for address, mode in self.addresses],
            "nodes": {"in": self.nodes, "out": self.all_nodes - self.nodes},
            "ageSeconds": round(self.age),
            "loadBalancerClass": self.load_balancer_class or None,
            "lastError": self.reason or None,
            "failures": known and known.failures,
            "retryInSeconds": known and known.retry_in,
            "queuedSeconds": known and known.queued,
            "workingSeconds": known and known.working,
        }


@dataclasses.dataclass(frozen=True)
class Cluster:
    """What is read of the cluster; `warnings` are the last ones, by the Service's UID."""

    services: Sequence[Service]
    nodes: Sequence[Node]
    warnings: Mapping[str, str]


def rows(cluster: Cluster, leader: Leader, scope: Scope, age: Callable[[Service], float]) -> tuple[Row, ...]:
    """Those that want a load balancer of this controller or have one, by name; `age` is in seconds."""
    eligible = len(predicates.eligible_nodes(cluster.nodes))
    found = []
    for service in cluster.services:
        if not predicates.concerns_us(service, scope):
            continue
        progress = None if leader.silent else leader.progress.get(str(service.key), Progress())
        state = state_of(service, progress or Progress(), scope)
        found.append(
            Row(
                service=str(service.key),
                state=state,
                addresses=tuple(
                    (one.ip or one.hostname or "", str(one.ip_mode or ""))
                    for one in service.status.load_balancer.ingress
                ),
                nodes=eligible,
                all_nodes=len(cluster.nodes),
                age=age(service),
                load_balancer_class=service.spec.load_balancer_class or "",
                reason=_reason(service, state, progress, cluster.warnings),
                progress=progress,
            )
        )
    return tuple(sorted(found, key=lambda one: one.service))


def state_of(service: Service, progress: Progress, scope: Scope) -> State:
    """What counts is first that it is paused or to go, then how the last attempt ended, then what the Service says itself."""
    said = {one.type for one in conditions.said(service) if one.is_trouble}
    if predicates.is_paused(service):
        return State.PAUSED
    if predicates.needs_cleanup(service, scope):
        return State.DELETING
    if progress.outcome == Outcome.WAITING:
        return State.WAITING
    if progress.outcome or progress.failures:
        return State.FAILING
    if not service.status.load_balancer.ingress:
        return State.PENDING
    return State.DEGRADED if said else State.SERVED


def _reason(service: Service, state: State, progress: Progress | None, warnings: Mapping[str, str]) -> str:
    if progress is not None and progress.reason:
        return progress.reason
    said = "; ".join(sorted({one.message for one in conditions.said(service) if one.is_trouble}))
    if said or state is State.SERVED:
        return said
    # An event tells of the past: it only counts where nobody knows better.
    return warnings.get(service.uid, "") if progress is None else ""


def lines(found: Sequence[Row], leader: Leader, scope: Scope, *, wide: bool = False) -> Iterable[str]:
    """A table that fits 100 columns, the last error below its Service; with `wide` nothing is cut, and all of one is one line."""
    if found:
        yield from _wide(found) if wide else _narrow(found)
    else:
        yield "no Service asks for a load balancer"
    if leader.silent:
        yield ""
        yield f"What only the leader knows (RETRY, and why) is missing: {leader.silent}"
        if not scope.classes:
            yield "Services with a loadBalancerClass are not shown either: name theirs with --load-balancer-class"


def _narrow(found: Sequence[Row]) -> Iterable[str]:
    table = [list(_LIMITS), *(_cells(one) for one in found)]
    heads, *body = tables.aligned(table, limits=tuple(_LIMITS.values()))
    yield heads
    for one, line in zip(found, body, strict=True):
        yield line
        if one.reason:
            yield tables.cut(f"  {one.reason}", WIDTH)


def _wide(found: Sequence[Row]) -> Iterable[str]:
    heads = [*_LIMITS, "FAILURES", "CLASS", "LAST ERROR"]
    return tables.aligned(
        [
            heads,
            *(
                [*_cells(one), _failures(one.progress), one.load_balancer_class or "-", one.reason or "-"]
                for one in found
            ),
        ]
    )


def _cells(one: Row) -> list[str]:
    modes = ",".join(dict.fromkeys(mode for _, mode in one.addresses if mode))
    return [
        one.service,
        one.state.value,
        ",".join(address for address, _ in one.addresses) or "-",
        modes or "-",
        f"{one.nodes}/{one.all_nodes}",
        tables.duration(one.age),
        _next(one.progress),
    ]


def _failures(known: Progress | None) -> str:
    return _UNKNOWN if known is None else str(known.failures)


def _next(known: Progress | None) -> str:
    if known is None:
        return _UNKNOWN
    if known.working is not None or known.queued is not None:
        return "now"
    return "-" if known.retry_in is None else tables.duration(known.retry_in)
