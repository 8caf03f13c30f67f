"""A model and the cloud itself give, hold back and free the same addresses, whatever is pending, fails or is interrupted."""

import asyncio
import ipaddress
import itertools
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import settings as profile
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fakecloud.cloud.intents import ActionOrder, Intent
from fakecloud.config import Settings
from fakecloud.errors import ProblemError
from fakecloud.models.base import Family
from fakecloud.models.listeners import Listener
from fakecloud.models.loadbalancers import LoadBalancer, LoadBalancerPatch, LoadBalancerSpec, Owner
from fakecloud.state.policy import AddressMode
from fakecloud.state.records import Change
from tests.fakecloud.planes import PlaneOfRoutes, RowStore, cloud_of

T = TypeVar("T")
UIDS = st.sampled_from(["a", "b", "c"])
FAMILIES = st.sampled_from([("IPv4",), ("IPv6",), ("IPv4", "IPv6"), ("IPv6", "IPv4")])
# Six addresses of the one family, two of the other, which run out.
POOLS = (ipaddress.ip_network("10.9.0.0/29"), ipaddress.ip_network("fd99::/126"))
SETTINGS = Settings(token="t", addresses=AddressMode.INTERFACE, pools=POOLS)
SIZES: Mapping[Family, int] = {"IPv4": 6, "IPv6": 2}


@dataclass
class Expected:
    """A load balancer of the model; addresses by family."""

    id: str
    addresses: dict[Family, str]
    leaving: dict[Family, str] = field(default_factory=dict)
    deleting: bool = False
    # What clients can connect to.
    served: dict[Family, str] = field(default_factory=dict)
    # A change of it is held back.
    under_way: bool = False
    failed: bool = False  # its last change


class AddressMachine(RuleBasedStateMachine):
    """While actions are held back by a fault, what is to go stays; it goes when they go on, or when the process starts anew."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store, self.numbers, self.plane = RowStore(), itertools.count(1), PlaneOfRoutes()
        self.known: dict[str, Expected] = {}
        self.pending = False

    @initialize()
    def start(self) -> None:
        self.plane = PlaneOfRoutes()
        self.cloud = cloud_of(SETTINGS, self.plane, self.store, self.numbers)
        self.run(self.cloud.open())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(coroutine)

    def intent(self, error: str | None = None) -> Intent:
        held = self.pending or error is not None
        return Intent(order=ActionOrder(lambda: self.pending, error) if held else None)

    def change(self, coroutine: Coroutine[Any, Any, Change[LoadBalancer]]) -> LoadBalancer | str:
        """The result, or the problem's slug."""
        try:
            return self.run(coroutine).result
        except ProblemError as error:
            return error.problem.type.rpartition("/")[2]

    def free(self, family: Family) -> int:
        held = [{*one.addresses.items(), *one.leaving.items()} for one in self.known.values()]
        return SIZES[family] - sum(other == family for pairs in held for other, _ in pairs)

    @rule(uid=UIDS, families=FAMILIES)
    def create(self, uid: str, families: tuple[Family, ...]) -> None:
        spec = LoadBalancerSpec(
            name=uid,
            owner=Owner(cluster="c", uid=uid),
            families=families,
            listeners=(Listener(port=80, target_port=1),),
        )
        made = self.change(self.cloud.create_load_balancer(spec, self.intent()))
        if (present := self.known.get(uid)) is not None:
            assert made == "being-deleted" if present.deleting else made != "being-deleted"
        elif any(self.free(family) == 0 for family in families):
            assert made == "address-pool-exhausted"
        else:
            assert isinstance(made, LoadBalancer)
            self.known[uid] = Expected(made.id, {one.family: one.address for one in made.addresses})
            self.settle(self.known[uid], fails=False)

    @rule(uid=UIDS, families=FAMILIES, fails=st.booleans())
    def change_families(self, uid: str, families: tuple[Family, ...], *, fails: bool) -> None:
        before = self.known.get(uid)
        if before is None:
            return
        body, intent = LoadBalancerPatch(families=families), self.intent("no capacity" if fails else None)
        patched = self.change(self.cloud.patch_load_balancer(before.id, body, intent))
        had = before.leaving | before.addresses
        if before.deleting:
            assert patched == "being-deleted"
        elif any(family not in had and self.free(family) == 0 for family in families):
            assert patched == "address-pool-exhausted"
        else:
            assert isinstance(patched, LoadBalancer)
            assert [one.family for one in patched.addresses] == list(families)
            now = {one.family: one.address for one in patched.addresses}
            # What it had, it keeps, also what was about to leave.
            assert {family: now[family] for family in now if family in had} == {
                family: had[family] for family in now if family in had
            }
            changed = tuple(before.addresses) != families
            before.addresses = now
            if changed:
                before.leaving = {family: address for family, address in had.items() if family not in now}
            # What failed is tried again by asking for the same once more.
            if changed or before.failed:
                self.settle(before, fails=fails)

    @rule(uid=UIDS, fails=st.booleans())
    def delete(self, uid: str, *, fails: bool) -> None:
        before = self.known.get(uid)
        if before is None:
            return
        begun = before.deleting
        removed = self.change(self.cloud.delete_load_balancer(before.id, self.intent("no" if fails else None)))
        assert isinstance(removed, LoadBalancer)
        if not begun:
            before.deleting = True
            self.settle(before, fails=fails)

    @precondition(lambda self: self.pending)
    @rule()
    def let_go(self) -> None:
        self.pending = False
        self.wait()
        for one in [one for one in self.known.values() if one.under_way]:
            self.settle(one, fails=False)

    @rule()
    def hold_back(self) -> None:
        self.pending = True

    @rule()
    def start_anew(self) -> None:
        self.run(self.cloud.close())
        self.pending = False
        self.start()
        for one in list(self.known.values()):
            self.settle(one, fails=False)

    def settle(self, one: Expected, *, fails: bool) -> None:
        """What a change's end does in the model; a fault that makes it fail does not hold it back."""
        one.failed = fails
        if fails:
            self.wait_for(one.id)
            one.deleting = False
        elif self.pending:
            one.under_way = True
        else:
            one.leaving, one.served, one.under_way = {}, one.addresses, False
            if one.deleting:
                self.known = {uid: other for uid, other in self.known.items() if other is not one}

    def wait(self) -> None:
        async def until_idle() -> None:
            async with asyncio.timeout(10):
                while self.cloud.ledger.unfinished():
                    await asyncio.sleep(0.001)

        self.run(until_idle())

    def wait_for(self, load_balancer_id: str) -> None:
        async def until_ended() -> None:
            async with asyncio.timeout(10):
                while not (latest := self.cloud.ledger.latest(load_balancer_id)) or not latest.status.finished:
                    await asyncio.sleep(0.001)

        self.run(until_ended())

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "cloud"):
            return
        state = self.cloud.state
        assert {
            (one.spec.owner and one.spec.owner.uid): (
                one.id,
                {each.family: each.address for each in one.addresses},
                {each.family: each.address for each in one.leaving},
                one.deleting,
            )
            for one in state.load_balancers.values()
        } == {uid: (one.id, one.addresses, one.leaving, one.deleting) for uid, one in self.known.items()}
        assert {pool.family: len(pool.usable) - len(pool.taken) for pool in state.pools.values()} == {
            family: self.free(family) for family in SIZES
        }
        assert self.plane.addresses == sorted(address for one in self.known.values() for address in one.served.values())

    def teardown(self) -> None:
        self.run(self.cloud.close())
        self.runner.close()


AddressMachine.TestCase.settings = profile(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True)
# Its time is that of hundreds of steps, on a machine that may be busy.
TestAddresses = pytest.mark.timeout(240)(AddressMachine.TestCase)
