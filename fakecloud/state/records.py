"""A state of the cloud, and a change from one to the next with what has to be stored for it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from fakecloud.ipam import Pool
from fakecloud.models.base import Model
from fakecloud.models.inventory import Server
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import LoadBalancer

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Kind(StrEnum):
    """What is stored."""

    LOAD_BALANCER = "load-balancer"
    SERVER = "server"
    POOL = "pool"
    FENCE = "fence"


class Fence(Model):
    """The highest number of Lease transitions seen from a cluster's Lease."""

    cluster: str
    lease_uid: str
    transitions: int

    @property
    def key(self) -> str:
        return json.dumps([self.cluster, self.lease_uid])


@dataclass(frozen=True)
class Record:
    """One row to write; without a body, to remove."""

    kind: Kind
    key: str
    body: Model | None


@dataclass(frozen=True)
class State:
    """Everything the cloud knows. Mappings are never changed in place: a write that fails leaves no trace."""

    servers: Mapping[str, Server] = field(default_factory=dict)
    pools: Mapping[str, Pool] = field(default_factory=dict)
    load_balancers: Mapping[str, LoadBalancer] = field(default_factory=dict)
    fences: Mapping[str, Fence] = field(default_factory=dict)
    by_owner: Mapping[tuple[str, str], str] = field(default_factory=dict)
    last_sequence: int = 0


@dataclass(frozen=True)
class Change(Generic[T]):
    """The state after, what the caller gets, what it amounts to, and the rows that make it last."""

    state: State
    result: T
    outcome: Outcome = Outcome.APPLIED
    records: tuple[Record, ...] = ()


def with_item(items: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    return {**items, key: value}


def without_item(items: Mapping[K, V], key: K) -> Mapping[K, V]:
    return {other: value for other, value in items.items() if other != key}


def restored(
    pools: Iterable[Pool], servers: Iterable[Server], load_balancers: Iterable[LoadBalancer], fences: Iterable[Fence]
) -> State:
    """The state that the stored rows describe; who holds which address follows from the load balancers."""
    ordered = sorted(load_balancers, key=lambda load_balancer: load_balancer.sequence)
    filled = {pool.name: pool for pool in pools}
    for load_balancer in ordered:
        for assigned in load_balancer.addresses:
            for pool in filled.values():
                if pool.holds(assigned.address):
                    filled[pool.name] = pool.with_taken(assigned.address)
                    break
    return State(
        servers={server.id: server for server in servers},
        pools=filled,
        load_balancers={load_balancer.id: load_balancer for load_balancer in ordered},
        fences={fence.key: fence for fence in fences},
        by_owner={(lb.spec.owner.cluster, lb.spec.owner.uid): lb.id for lb in ordered},
        last_sequence=ordered[-1].sequence if ordered else 0,
    )
