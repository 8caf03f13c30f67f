"""A state of the cloud, and a change from one to the next with what has to be stored for it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from fakecloud.models.base import Model
from fakecloud.models.inventory import ReservedAddress, Server
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import LoadBalancer
from fakecloud.state.ipam import Pool

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Kind(StrEnum):
    """What is stored."""

    LOAD_BALANCER = "load-balancer"
    SERVER = "server"
    POOL = "pool"
    FENCE = "fence"
    RESERVED_ADDRESS = "reserved-address"
    ACTION = "action"
    REPLY = "reply"


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
    # By name; each has its address.
    reserved: Mapping[str, ReservedAddress] = field(default_factory=dict)
    by_owner: Mapping[tuple[str, str], str] = field(default_factory=dict)
    last_sequence: int = 0


@dataclass(frozen=True)
class Change(Generic[T]):
    """The state after, what the caller gets, what it amounts to, and the rows that make it last."""

    state: State
    result: T
    outcome: Outcome = Outcome.APPLIED
    records: tuple[Record, ...] = ()
    # The id of the action that carries it out, once there is one.
    action: str | None = None


def _tables(state: State) -> Mapping[Kind, Mapping[str, object]]:
    return {
        Kind.LOAD_BALANCER: state.load_balancers,
        Kind.SERVER: state.servers,
        Kind.POOL: state.pools,
        Kind.FENCE: state.fences,
        Kind.RESERVED_ADDRESS: state.reserved,
    }


def is_stored(state: State, kind: Kind, key: str) -> bool:
    return key in _tables(state)[kind]


def stored_keys(state: State) -> Sequence[tuple[Kind, str]]:
    """The rows that a state consists of."""
    return [(kind, key) for kind, table in _tables(state).items() for key in table]


def with_item(items: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    return {**items, key: value}


def without_item(items: Mapping[K, V], key: K) -> Mapping[K, V]:
    return {other: value for other, value in items.items() if other != key}


def restored(
    pools: Iterable[Pool],
    servers: Iterable[Server],
    load_balancers: Iterable[LoadBalancer],
    fences: Iterable[Fence],
    reserved: Iterable[ReservedAddress] = (),
) -> State:
    """The state that the stored rows describe; which address is given out follows from who holds it."""
    ordered = sorted(load_balancers, key=lambda load_balancer: load_balancer.sequence)
    kept = {one.name: one for one in reserved}
    held = {address for load_balancer in ordered for address in load_balancer.held}
    held |= {one.address for one in kept.values() if one.address is not None}
    filled = {pool.name: pool.with_all_taken(address for address in held if pool.holds(address)) for pool in pools}
    return State(
        reserved=kept,
        servers={server.id: server for server in servers},
        pools=filled,
        load_balancers={load_balancer.id: load_balancer for load_balancer in ordered},
        fences={fence.key: fence for fence in fences},
        by_owner={lb.spec.owner.key: lb.id for lb in ordered if lb.spec.owner is not None},
        last_sequence=ordered[-1].sequence if ordered else 0,
    )
