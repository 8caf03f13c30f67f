"""The cloud itself: what can be asked of it, and how it starts and ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fakecloud.cloud.actionrunner import ActionRunner
from fakecloud.cloud.changes import Changes, ClusterOf
from fakecloud.cloud.intents import NOTHING_SPECIAL, Intent
from fakecloud.cloud.ledger import Ledger
from fakecloud.cloud.loading import moved
from fakecloud.cloud.repository import Repository
from fakecloud.cloud.store import Store, StoreError
from fakecloud.cloud.traffic import Traffic
from fakecloud.config import Settings
from fakecloud.dataplane.delivery import Delivery
from fakecloud.faults.rules import Armed, Strike
from fakecloud.models.base import Family
from fakecloud.models.cloud import CloudView
from fakecloud.models.faults import StaleListsFault, StaleReadsFault
from fakecloud.models.inventory import AddressPool, ReservedAddress, Server
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import LoadBalancer, LoadBalancerPatch, LoadBalancerSpec, Owner
from fakecloud.models.views import LoadBalancerView, view
from fakecloud.state import inventory, ipam, loadbalancers, pools, reservations, settling
from fakecloud.state.ipam import Pool
from fakecloud.state.policy import AddressMode, Policy
from fakecloud.state.records import Change, Kind, Record, State, stored_keys


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
        self._now = surroundings.now
        self._new_id = surroundings.new_id
        self._policy = Policy(
            settings.target_networks, settings.addresses, settings.max_load_balancers, settings.delivery
        )
        self._repository = Repository(surroundings.store, surroundings.clock)
        self._traffic = Traffic(plane)
        self._runner = ActionRunner(settings.action_seconds)
        self._changes = Changes(self._repository, self._traffic, self._runner, surroundings.now)

    @property
    def state(self) -> State:
        return self._repository.state

    @property
    def ledger(self) -> Ledger:
        return self._repository.ledger

    def about(self) -> CloudView:
        """What clients have to know of this cloud, so that nobody has to configure it a second time on their side."""
        told = self._settings
        families: tuple[Family, ...] = ("IPv4", "IPv6")
        return CloudView(
            delivery=told.delivery,
            addresses=told.addresses.value,
            families=tuple(one for one in families if told.addresses.family_refusal(one) is None),
            max_load_balancers=told.max_load_balancers,
            max_connections=told.max_connections if told.delivery == "proxy" else None,
            max_body_bytes=told.max_body,
            action_seconds=told.action_seconds,
        )

    async def open(self) -> None:
        """
        Take up what was stored, end what was under way, add the configured pools, and serve traffic again.

        A port that can't be had is reported in its load balancer's status. Raises StoreError.
        """
        self._repository.open()
        if self._settings.addresses is AddressMode.SHARED:
            await self._repository.write(moved(self.state, self._settings.pools[0]), ())
        settled = settling.settled(self.state, settling.everything(self.state), done=True)
        await self._repository.write(settled.state, settled.records)
        await self._add_configured_pools()
        for load_balancer in self.state.load_balancers.values():
            await self._traffic.serve(self.state, load_balancer)
        await self._changes.finish_all()

    async def close(self) -> None:
        """End what is under way; the next start carries it out."""
        await self._runner.close()

    async def reset(self) -> None:
        """Forget everything but the configured pools."""
        async with self._changes.lock:
            await self._runner.close()
            gone = list(self.state.load_balancers)
            await self._repository.clear([Record(kind, key, None) for kind, key in stored_keys(self.state)])
            for load_balancer_id in gone:
                self._traffic.remove(load_balancer_id)
            await self._add_configured_pools()

    def follow(self, faults: Sequence[Armed], strike: Strike) -> None:  # noqa: ARG002 - traffic's affair
        """Keep as much history as the faults make reads look back."""
        effects = (fault.spec.effect for fault in faults)
        lags = (one.seconds for one in effects if isinstance(one, StaleReadsFault | StaleListsFault))
        self._repository.remember(max(lags, default=0))

    def state_ago(self, seconds: float) -> State:
        """What a read sees that lags so many seconds behind."""
        return self._repository.ago(seconds)

    async def reopen_failing(self) -> None:
        """Try again to open the listeners whose port could not be had."""
        async with self._changes.lock:
            for load_balancer_id in self._traffic.failing():
                await self._traffic.serve(self.state, self.state.load_balancers[load_balancer_id])

    def view(self, load_balancer: LoadBalancer) -> LoadBalancerView:
        latest = self.ledger.latest(load_balancer.id)
        return view(
            load_balancer,
            self._traffic.status(self.state, load_balancer),
            "deleting" if load_balancer.deleting else self.ledger.state_of(load_balancer.id),
            None if latest is None else latest.id,
        )

    async def create_load_balancer(
        self, spec: LoadBalancerSpec, intent: Intent = NOTHING_SPECIAL
    ) -> Change[LoadBalancer]:
        stamp = loadbalancers.Stamp(self._new_id(), self._now())
        return await self._changes.apply(
            lambda state: loadbalancers.create(state, spec, self._policy, stamp), intent, lambda _: _cluster(spec.owner)
        )

    async def patch_load_balancer(
        self, load_balancer_id: str, body: LoadBalancerPatch, intent: Intent = NOTHING_SPECIAL
    ) -> Change[LoadBalancer]:
        """Asked for once more, a change that failed is tried again."""

        def decide(state: State) -> Change[LoadBalancer]:
            change = loadbalancers.patch(state, load_balancer_id, body, self._policy, intent.if_match)
            if change.records or self.ledger.state_of(load_balancer_id) != "error":
                return change
            again = (Record(Kind.LOAD_BALANCER, load_balancer_id, change.result),)
            return replace(change, outcome=Outcome.APPLIED, records=again)

        owner_of = _owner_of(load_balancer_id)
        # Who takes over what is nobody's writes for its own cluster.
        return await self._changes.apply(decide, intent, lambda state: owner_of(state) or _cluster(body.owner))

    async def delete_load_balancer(
        self, load_balancer_id: str, intent: Intent = NOTHING_SPECIAL
    ) -> Change[LoadBalancer]:
        """It is gone when its action is done; until then a repetition names the same action."""
        change = await self._changes.apply(
            lambda state: loadbalancers.begin_delete(state, load_balancer_id, intent.if_match),
            intent,
            _owner_of(load_balancer_id),
        )
        under_way = self.ledger.latest(load_balancer_id) if change.action is None else None
        return change if under_way is None else replace(change, action=under_way.id)

    async def add_server(self, server: Server, intent: Intent = NOTHING_SPECIAL) -> Change[Server]:
        networks = self._settings.target_networks
        return await self._changes.apply(lambda state: inventory.add_server(state, server, networks), intent)

    async def put_server(self, server: Server, intent: Intent = NOTHING_SPECIAL) -> Change[Server]:
        networks = self._settings.target_networks
        return await self._changes.apply(lambda state: inventory.put_server(state, server, networks), intent)

    async def delete_server(self, server_id: str, intent: Intent = NOTHING_SPECIAL) -> Change[Server]:
        return await self._changes.apply(lambda state: inventory.delete_server(state, server_id), intent)

    async def add_pool(self, body: AddressPool, intent: Intent = NOTHING_SPECIAL) -> Change[Pool]:
        mode = self._settings.addresses
        return await self._changes.apply(lambda state: inventory.add_pool(state, body, mode), intent)

    async def delete_pool(self, name: str, intent: Intent = NOTHING_SPECIAL) -> Change[Pool]:
        return await self._changes.apply(lambda state: inventory.delete_pool(state, name), intent)

    async def reserve_address(self, body: ReservedAddress, intent: Intent = NOTHING_SPECIAL) -> Change[ReservedAddress]:
        return await self._changes.apply(lambda state: reservations.reserve(state, body, self._policy), intent)

    async def release_address(self, name: str, intent: Intent = NOTHING_SPECIAL) -> Change[ReservedAddress]:
        return await self._changes.apply(lambda state: reservations.release(state, name), intent)

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
                await self._repository.write(change.state, () if shared else change.records)


def _owner_of(load_balancer_id: str) -> ClusterOf:
    return lambda state: _cluster(loadbalancers.find(state, load_balancer_id).spec.owner)


def _cluster(owner: Owner | None) -> str | None:
    return None if owner is None else owner.cluster
