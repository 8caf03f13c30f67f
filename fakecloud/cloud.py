"""The cloud itself: decides by the state machine, makes it last, and lets the data plane follow."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from fakecloud import errors, ipam
from fakecloud.config import Settings, pool_refusal
from fakecloud.dataplane.plane import ListenError, Plane, Staged
from fakecloud.ipam import Pool
from fakecloud.models.base import Model
from fakecloud.models.inventory import AddressPool, Server
from fakecloud.models.loadbalancers import LoadBalancer, LoadBalancerPatch, LoadBalancerSpec, LoadBalancerView, view
from fakecloud.models.problems import FieldError
from fakecloud.routes import affected, route_of
from fakecloud.state import fencing, inventory, loadbalancers
from fakecloud.state.fencing import FencingToken
from fakecloud.state.records import Change, Fence, Kind, State, restored
from fakecloud.store import Store, StoreError

logger = logging.getLogger(__name__)
T = TypeVar("T")
ClusterOf = Callable[[State], str]


@dataclass(frozen=True)
class Surroundings:
    """What differs between the real process and a test: where rows last, the time, and ids."""

    store: Store
    # RFC 3339, UTC.
    now: Callable[[], str]
    # A new load balancer's id; never one that was given before.
    new_id: Callable[[], str]


class Cloud:
    """One write at a time; a write is stored, then visible, then answered, and one that fails leaves no trace."""

    def __init__(self, settings: Settings, plane: Plane, surroundings: Surroundings) -> None:
        self._settings = settings
        self._plane = plane
        self._store = surroundings.store
        self._now = surroundings.now
        self._new_id = surroundings.new_id
        self._lock = asyncio.Lock()
        self.state = State()

    async def open(self) -> None:
        """
        Take up what was stored, add the configured pools, and serve traffic again.

        A port that can't be had is reported in its load balancer's status. Raises StoreError.
        """
        self.state = _restore(self._store)
        for network in self._settings.pools:
            known = tuple(pool.network for pool in self.state.pools.values())
            if network not in known:
                if (reason := pool_refusal(network, known)) is not None:
                    raise StoreError(f"--pool {network} {reason} that the state file holds; delete that one first")
                body = AddressPool(name=ipam.default_name(network), cidr=str(network))
                await self._apply(lambda state, body=body: inventory.add_pool(state, body))  # type: ignore[misc]
        for load_balancer in self.state.load_balancers.values():
            await self._plane.activate(self._plane.stage(route_of(self.state, load_balancer), tolerate=True))

    async def reopen_failing(self) -> None:
        """Try again to open the listeners whose port could not be had."""
        async with self._lock:
            for load_balancer_id in self._plane.failing():
                route = route_of(self.state, self.state.load_balancers[load_balancer_id])
                await self._plane.activate(self._plane.stage(route, tolerate=True))

    def view(self, load_balancer: LoadBalancer) -> LoadBalancerView:
        return view(load_balancer, self._plane.status(route_of(self.state, load_balancer)))

    async def create_load_balancer(self, spec: LoadBalancerSpec, token: FencingToken | None) -> Change[LoadBalancer]:
        stamp = loadbalancers.Stamp(self._new_id(), self._now())
        networks = self._settings.target_networks
        return await self._apply(
            lambda state: loadbalancers.create(state, spec, networks, stamp), lambda _: spec.owner.cluster, token
        )

    async def patch_load_balancer(
        self, load_balancer_id: str, body: LoadBalancerPatch, if_match: str | None, token: FencingToken | None
    ) -> Change[LoadBalancer]:
        networks = self._settings.target_networks
        return await self._apply(
            lambda state: loadbalancers.patch(state, load_balancer_id, body, networks, if_match),
            _owner_of(load_balancer_id),
            token,
        )

    async def delete_load_balancer(
        self, load_balancer_id: str, if_match: str | None, token: FencingToken | None
    ) -> Change[LoadBalancer]:
        return await self._apply(
            lambda state: loadbalancers.delete(state, load_balancer_id, if_match), _owner_of(load_balancer_id), token
        )

    async def add_server(self, server: Server) -> Change[Server]:
        return await self._apply(lambda state: inventory.add_server(state, server, self._settings.target_networks))

    async def put_server(self, server: Server) -> Change[Server]:
        return await self._apply(lambda state: inventory.put_server(state, server, self._settings.target_networks))

    async def delete_server(self, server_id: str) -> Change[Server]:
        return await self._apply(lambda state: inventory.delete_server(state, server_id))

    async def add_pool(self, body: AddressPool) -> Change[Pool]:
        return await self._apply(lambda state: inventory.add_pool(state, body))

    async def delete_pool(self, name: str) -> Change[Pool]:
        return await self._apply(lambda state: inventory.delete_pool(state, name))

    async def _apply(
        self,
        decide: Callable[[State], Change[T]],
        cluster_of: ClusterOf | None = None,
        token: FencingToken | None = None,
    ) -> Change[T]:
        async with self._lock:
            if cluster_of is not None:
                # Stored even where the request itself is refused below: a newer holder has spoken.
                await self._commit(fencing.admit(self.state, cluster_of(self.state), token))
            change = decide(self.state)
            # Ports are bound before anything is promised, and served only once the rows are stored.
            staged = self._stage(change)
            try:
                await self._commit(change)
            except BaseException:
                for bound in staged:
                    bound.discard()
                raise
            for bound in staged:
                await self._plane.activate(bound)
            for record in change.records:
                if record.kind is Kind.LOAD_BALANCER and record.body is None:
                    self._plane.remove(record.key)
            return change

    def _stage(self, change: Change[T]) -> list[Staged]:
        # A server's change must not fail because some load balancer's port can't be had.
        by_server = any(record.kind is Kind.SERVER for record in change.records)
        return [self._bind(change.state, lb, tolerate=by_server) for lb in affected(change.state, change.records)]

    def _bind(self, state: State, load_balancer: LoadBalancer, *, tolerate: bool) -> Staged:
        try:
            return self._plane.stage(route_of(state, load_balancer), tolerate=tolerate)
        except ListenError as error:
            port = load_balancer.spec.listeners[error.index].port
            field = FieldError(field=f"listeners[{error.index}].port", message=str(error), value=port)
            raise errors.invalid([field]) from error

    async def _commit(self, change: Change[T]) -> None:
        if change.records:
            try:
                await self._store.commit(change.records)
            except StoreError as error:
                logger.exception("a write could not be stored")
                raise errors.problem(503, "storage-failed", f"the change was not made: {error}") from error
            self.state = change.state


def _owner_of(load_balancer_id: str) -> ClusterOf:
    return lambda state: loadbalancers.find(state, load_balancer_id).spec.owner.cluster


_STORED: Mapping[Kind, type[Model]] = {
    Kind.LOAD_BALANCER: LoadBalancer,
    Kind.SERVER: Server,
    Kind.POOL: AddressPool,
    Kind.FENCE: Fence,
}


def _restore(store: Store) -> State:
    bodies: list[Model] = []
    for kind, text in store.load():
        try:
            bodies.append(_STORED[kind].model_validate_json(text))
        except ValidationError as error:
            raise StoreError(f"the state file holds a {kind} that can't be read: {error.errors()[0]['msg']}") from error
    return restored(
        [inventory.pool_of(body) for body in bodies if isinstance(body, AddressPool)],
        [body for body in bodies if isinstance(body, Server)],
        [body for body in bodies if isinstance(body, LoadBalancer)],
        [body for body in bodies if isinstance(body, Fence)],
    )
