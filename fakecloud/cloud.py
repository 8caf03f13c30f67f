"""The cloud itself: decides by the state machine, makes it last, and lets the data plane follow."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from fakecloud import errors, ipam, pools
from fakecloud.config import Settings
from fakecloud.dataplane.delivery import Delivery, ListenError, Staged
from fakecloud.faults.rules import Armed, Strike
from fakecloud.history import History
from fakecloud.intents import NOTHING_SPECIAL, Intent
from fakecloud.ipam import Pool
from fakecloud.ledger import Ledger, StoredReply
from fakecloud.models.actions import Action, ActionKind, ActionStatus
from fakecloud.models.faults import StaleListsFault, StaleReadsFault
from fakecloud.models.inventory import AddressPool, ReservedAddress, Server
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import LoadBalancer, LoadBalancerPatch, LoadBalancerSpec
from fakecloud.models.problems import FieldError
from fakecloud.models.views import LoadBalancerView, view
from fakecloud.policy import AddressMode, Policy
from fakecloud.restoring import moved, restore
from fakecloud.routes import affected, route_of
from fakecloud.state import fencing, inventory, loadbalancers, reservations
from fakecloud.state.records import Change, Kind, Record, State, is_stored, stored_keys
from fakecloud.store import Store, StoreError

logger = logging.getLogger(__name__)
T = TypeVar("T")
ClusterOf = Callable[[State], str]
_ORDER_CHECK = 0.02


@dataclass(frozen=True)
class Surroundings:
    """What differs between the real process and a test: where rows last, the time, and ids."""

    store: Store
    # RFC 3339, UTC.
    now: Callable[[], str]
    # A new load balancer's id; never one that was given before.
    new_id: Callable[[], str]
    # Monotonic, in seconds.
    clock: Callable[[], float]


class Cloud:
    """One write at a time; a write is stored, then visible, then answered, and one that fails leaves no trace."""

    def __init__(self, settings: Settings, plane: Delivery, surroundings: Surroundings) -> None:
        self._settings = settings
        self._plane = plane
        self._store = surroundings.store
        self._now = surroundings.now
        self._new_id = surroundings.new_id
        self._policy = Policy(
            settings.target_networks, settings.addresses, settings.max_load_balancers, settings.delivery
        )
        self._lock = asyncio.Lock()
        self._history = History(surroundings.clock)
        self._working: set[asyncio.Task[None]] = set()
        self.ledger = Ledger()
        self.state = State()

    async def open(self) -> None:
        """
        Take up what was stored, add the configured pools, and serve traffic again.

        A port that can't be had is reported in its load balancer's status. Raises StoreError.
        """
        found = restore(self._store)
        self.state, self.ledger = found.state, found.ledger
        if self._settings.addresses is AddressMode.SHARED:
            self.state = moved(self.state, self._settings.pools[0])
        await self._add_configured_pools()
        for load_balancer in self.state.load_balancers.values():
            await self._plane.activate(self._plane.stage(route_of(self.state, load_balancer), tolerate=True))
        # Whatever was under way is carried out by now: traffic follows what is stored.
        for action in self.ledger.unfinished():
            await self._finish(action, None)

    async def close(self) -> None:
        """End what is under way; the next start carries it out."""
        for task in self._working:
            task.cancel()
        await asyncio.gather(*self._working, return_exceptions=True)

    async def reset(self) -> None:
        """Forget everything but the configured pools."""
        await self.close()
        async with self._lock:
            gone = list(self.state.load_balancers)
            records = [Record(kind, key, None) for kind, key in stored_keys(self.state)]
            await self._commit(State(), [*records, *self.ledger.all_records()])
            self.ledger = Ledger()
            for load_balancer_id in gone:
                self._plane.remove(load_balancer_id)
            await self._add_configured_pools()

    def follow(self, faults: Sequence[Armed], strike: Strike) -> None:  # noqa: ARG002 - traffic's affair
        """Keep as much history as the faults make reads look back."""
        effects = (fault.spec.effect for fault in faults)
        seconds = max((one.seconds for one in effects if isinstance(one, StaleReadsFault | StaleListsFault)), default=0)
        self._history.keep(seconds, self.state)

    def state_ago(self, seconds: float) -> State:
        """What a read sees that lags so many seconds behind."""
        return self._history.ago(seconds, self.state)

    async def reopen_failing(self) -> None:
        """Try again to open the listeners whose port could not be had."""
        async with self._lock:
            for load_balancer_id in self._plane.failing():
                route = route_of(self.state, self.state.load_balancers[load_balancer_id])
                await self._plane.activate(self._plane.stage(route, tolerate=True))

    def view(self, load_balancer: LoadBalancer) -> LoadBalancerView:
        latest = self.ledger.latest(load_balancer.id)
        return view(
            load_balancer,
            self._plane.status(route_of(self.state, load_balancer)),
            self.ledger.state_of(load_balancer.id),
            None if latest is None else latest.id,
        )

    async def create_load_balancer(
        self, spec: LoadBalancerSpec, intent: Intent = NOTHING_SPECIAL
    ) -> Change[LoadBalancer]:
        stamp = loadbalancers.Stamp(self._new_id(), self._now())
        return await self._apply(
            lambda state: loadbalancers.create(state, spec, self._policy, stamp), intent, lambda _: spec.owner.cluster
        )

    async def patch_load_balancer(
        self, load_balancer_id: str, body: LoadBalancerPatch, intent: Intent = NOTHING_SPECIAL
    ) -> Change[LoadBalancer]:
        return await self._apply(
            lambda state: loadbalancers.patch(state, load_balancer_id, body, self._policy, intent.if_match),
            intent,
            _owner_of(load_balancer_id),
        )

    async def delete_load_balancer(
        self, load_balancer_id: str, intent: Intent = NOTHING_SPECIAL
    ) -> Change[LoadBalancer]:
        return await self._apply(
            lambda state: loadbalancers.delete(state, load_balancer_id, intent.if_match),
            intent,
            _owner_of(load_balancer_id),
        )

    async def add_server(self, server: Server, intent: Intent = NOTHING_SPECIAL) -> Change[Server]:
        networks = self._settings.target_networks
        return await self._apply(lambda state: inventory.add_server(state, server, networks), intent)

    async def put_server(self, server: Server, intent: Intent = NOTHING_SPECIAL) -> Change[Server]:
        networks = self._settings.target_networks
        return await self._apply(lambda state: inventory.put_server(state, server, networks), intent)

    async def delete_server(self, server_id: str, intent: Intent = NOTHING_SPECIAL) -> Change[Server]:
        return await self._apply(lambda state: inventory.delete_server(state, server_id), intent)

    async def add_pool(self, body: AddressPool, intent: Intent = NOTHING_SPECIAL) -> Change[Pool]:
        mode = self._settings.addresses
        return await self._apply(lambda state: inventory.add_pool(state, body, mode), intent)

    async def delete_pool(self, name: str, intent: Intent = NOTHING_SPECIAL) -> Change[Pool]:
        return await self._apply(lambda state: inventory.delete_pool(state, name), intent)

    async def reserve_address(self, body: ReservedAddress, intent: Intent = NOTHING_SPECIAL) -> Change[ReservedAddress]:
        return await self._apply(lambda state: reservations.reserve(state, body, self._policy), intent)

    async def release_address(self, name: str, intent: Intent = NOTHING_SPECIAL) -> Change[ReservedAddress]:
        return await self._apply(lambda state: reservations.release(state, name), intent)

    async def _apply(
        self, decide: Callable[[State], Change[T]], intent: Intent, cluster_of: ClusterOf | None = None
    ) -> Change[T]:
        async with self._lock:
            replayed = self._replay(intent)
            if cluster_of is not None:
                # Stored even where the request itself is refused below: a newer holder has spoken.
                cluster = cluster_of(self.state) if replayed is None else replayed.result.spec.owner.cluster
                admitted = fencing.admit(self.state, cluster, intent.token)
                await self._commit(admitted.state, admitted.records)
            if replayed is not None:
                return replayed  # type: ignore[return-value]  # the fingerprint holds the operation
            change = decide(self.state)
            if not change.records:
                return change
            # Ports are bound before anything is promised, and served only once the rows are stored.
            later = intent.order is not None or self._settings.action_seconds > 0
            staged = [] if later else self._stage(change)
            action = self._action(change, ActionStatus.PENDING if later else ActionStatus.DONE)
            entry = self.ledger.planned(action, *_reply(change, intent, action))
            try:
                await self._commit(change.state, [*change.records, *entry.records])
            except BaseException:
                for bound in staged:
                    bound.discard()
                raise
            self.ledger.keep(entry)
            for bound in staged:
                await self._plane.activate(bound)
            for record in change.records:
                if record.kind is Kind.LOAD_BALANCER and record.body is None:
                    self._plane.remove(record.key)
            if later:
                self._start(action, change.records, intent)
            return replace(change, action=action.id)

    def _replay(self, intent: Intent = NOTHING_SPECIAL) -> Change[LoadBalancer] | None:
        stored = self.ledger.reply(intent.key) if intent.key is not None else None
        if stored is None:
            return None
        if stored.fingerprint != intent.fingerprint:
            message = "was used for a different request; take a new key for this one"
            raise errors.invalid([FieldError(field="Idempotency-Key", message=message, value=intent.key)])
        return Change(self.state, stored.load_balancer, Outcome.REPLAYED, action=stored.action)

    def _action(self, change: Change[T], status: ActionStatus) -> Action:
        first, now = change.records[0], self._now()
        kind = ActionKind.UPDATE if is_stored(self.state, first.kind, first.key) else ActionKind.CREATE
        return Action(
            id=self.ledger.new_id(),
            kind=ActionKind.DELETE if first.body is None else kind,
            resource_type=first.kind.value,
            resource=first.key,
            status=status,
            created_at=now,
            finished_at=now if status.finished else None,
        )

    def _start(self, action: Action, records: tuple[Record, ...], intent: Intent) -> None:
        task = asyncio.create_task(self._carry_out(action, records, intent))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _carry_out(self, action: Action, records: tuple[Record, ...], intent: Intent) -> None:
        """A quarter of the action's time it waits, then it runs."""
        seconds, order = self._settings.action_seconds, intent.order
        while order is not None and order.error is None and order.holds():  # noqa: ASYNC110 - faults do not tell
            await asyncio.sleep(_ORDER_CHECK)
        await asyncio.sleep(seconds / 4)
        running = action.model_copy(update={"status": ActionStatus.RUNNING})
        async with self._lock:
            await self._note(running)
        await asyncio.sleep(seconds * 3 / 4)
        async with self._lock:
            error = order.error if order is not None else None
            await self._finish(running, error or await self._catch_up(records))

    async def _catch_up(self, records: tuple[Record, ...]) -> str | None:
        """Make traffic follow the present state of what was changed; a failure as words."""
        try:
            for load_balancer in affected(self.state, records):
                await self._plane.activate(self._plane.stage(route_of(self.state, load_balancer)))
        except ListenError as error:
            return str(error)
        return None

    async def _finish(self, action: Action, error: str | None) -> None:
        status = ActionStatus.DONE if error is None else ActionStatus.ERROR
        await self._note(action.model_copy(update={"status": status, "error": error, "finished_at": self._now()}))

    async def _note(self, action: Action) -> None:
        entry = self.ledger.planned(action)
        await self._store.commit(entry.records)
        self.ledger.keep(entry)

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

    async def _commit(self, state: State, records: Sequence[Record]) -> None:
        if records:
            try:
                await self._store.commit(records)
            except StoreError as error:
                logger.exception("a write could not be stored")
                raise errors.problem(503, "storage-failed", f"the change was not made: {error}") from error
            self.state = state
            self._history.note(state)

    async def _add_configured_pools(self) -> None:
        for network in self._settings.pools:
            known = tuple(pool.network for pool in self.state.pools.values())
            if network not in known:
                if (reason := pools.refusal(network, known, self._settings.addresses)) is not None:
                    raise StoreError(f"--pool {network} {reason} that the state file holds; delete that one first")
                body = AddressPool(name=ipam.default_name(network), cidr=str(network))
                change = inventory.add_pool(self.state, body, self._settings.addresses)
                # A shared address belongs to this host or pod, so that it is not stored.
                shared = self._settings.addresses is AddressMode.SHARED
                await self._commit(change.state, () if shared else change.records)
                self.state = change.state


def _owner_of(load_balancer_id: str) -> ClusterOf:
    return lambda state: loadbalancers.find(state, load_balancer_id).spec.owner.cluster


def _reply(change: Change[T], intent: Intent, action: Action) -> Sequence[StoredReply]:
    if intent.key is None or not isinstance(change.result, LoadBalancer):
        return ()
    return [StoredReply(key=intent.key, fingerprint=intent.fingerprint, load_balancer=change.result, action=action.id)]
