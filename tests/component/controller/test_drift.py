"""Load balancers that are changed in the cloud: found in time, told once, put back or left, and read no more often for it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ccm_lb.backends.actual import ActualLoadBalancer, Settings
from ccm_lb.backends.base import Reads
from ccm_lb.controller.drift import DriftPolicy, Mode
from ccm_lb.errors import CCMError, CloudUnreachableError
from ccm_lb.objects import Node, Service
from ccm_lb.testing import builders
from ccm_lb.testing.memory import Call, MemoryBackend
from ccm_lb.testing.script import Lost
from tests.component.world import CLUSTER, ENSURED, ENSURING, KEY, UID, CallTimes, World, settle

pytestmark = pytest.mark.looptime

PERIOD = 300.0
WITHOUT_N3 = "Warning LoadBalancerDrifted the load balancer was changed in the cloud: targets is without n3; "
REPAIRED = f"{WITHOUT_N3}the Service wins: it was put back as the Service asks"
REPORTED = f"{WITHOUT_N3}the cloud wins: --drift=report leaves it so"


def world(mode: Mode = Mode.REPAIR, backend: type[MemoryBackend] = MemoryBackend) -> World:
    made = World(drift=DriftPolicy(mode, PERIOD))
    made.backend_class = backend
    made.start_process()
    return made


def numbered(number: int) -> str:
    return f"{UID[:-3]}{number:03}"


def create(here: World, services: int) -> None:
    here.add_nodes()
    for number in range(services):
        here.create(builders.named(f"web-{number}"), builders.uid(numbered(number)))


def tamper(here: World, uid: str = UID, **changes: Any) -> None:
    """Somebody changes the load balancer past the controller; a target less, unless told otherwise."""
    before = here.cloud.load_balancers[CLUSTER, uid]
    here.cloud.load_balancers[CLUSTER, uid] = dataclasses.replace(before, **(changes or {"targets": ("n1", "n2")}))


class OneByOne(MemoryBackend):
    """Reads one at a time."""

    reads = Reads.ONE


class Mute(MemoryBackend):
    """Tells nothing beyond the five methods."""

    reads = Reads.NOTHING

    def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        raise NotImplementedError


CHANGES: dict[str, dict[str, Any]] = {
    "targets is without n1, n2, n3": {"targets": ()},
    "listeners is without TCP/80": {"listeners": ()},
    "listeners[TCP/80].nodePort is 1 instead of 30080": {"listeners": (("TCP", 80, 1),)},
    "listeners[TCP/80].proxyProtocol is v2 instead of none": {"proxy_protocol": {80: "v2"}},
    f"name is mine instead of a{UID.replace('-', '')[:31]}": {"name": "mine"},
    "sourceRanges is with 10.0.0.0/8, which is not wanted": {"source_ranges": ("10.0.0.0/8",)},
}


@pytest.mark.parametrize(("said", "changes"), CHANGES.items(), ids=list(CHANGES))
async def test_what_is_changed_is_found_in_time_told_and_put_back(said: str, changes: dict[str, Any]) -> None:
    here = world()
    async with here.working():
        await here.served()
        before = here.cloud.load_balancers[CLUSTER, UID]
        tamper(here, **changes)
        await settle(PERIOD)
        assert here.cloud.load_balancers[CLUSTER, UID] == before
        told = [line for line in here.events.lines() if "Drifted" in line]
        assert told == [
            f"Warning LoadBalancerDrifted the load balancer was changed in the cloud: {said}; "
            "the Service wins: it was put back as the Service asks"
        ]
        assert [line for line in here.events.lines() if line not in told] == [ENSURING, ENSURED]
        assert here.outcomes.drifts == ["repaired"]
        assert here.cloud.changes() == ["UPDATE"]


async def test_a_deleted_load_balancer_is_made_again_and_its_address_published() -> None:
    here = world()
    async with here.working():
        await here.served()
        del here.cloud.load_balancers[CLUSTER, UID]
        await settle(PERIOD)
        assert here.ingress == [{"ip": "203.0.113.2", "ipMode": "Proxy"}]
        [told] = [line for line in here.events.lines() if "Drifted" in line]
        assert "the load balancer is missing; the Service wins" in told
        assert "AddressChanged" in here.events.reasons()


async def test_what_nobody_changed_costs_one_request_for_a_hundred_and_nothing_else() -> None:
    here = world()
    async with here.working():
        create(here, 250)
        await settle(30)
        here.forget_history()
        times = CallTimes(here, "list")
        await settle(10 * PERIOD)
        assert set(here.cloud.verbs()) == {"list"}
        assert 10 <= len(times.all) / 3 <= 13
        assert here.api.patches == []
        assert here.events.lines() == []


async def test_drift_of_one_makes_nothing_be_read_more_often() -> None:
    here = world()
    async with here.working():
        await here.served()
        times = CallTimes(here, "list")
        tamper(here)
        await settle(4 * PERIOD)
        assert all(0.8 * PERIOD - 1 <= gap <= 0.95 * PERIOD + 1 for gap in times.gaps())
        assert here.cloud.verbs().count("read") == here.cloud.verbs().count("ensure") == 1


async def test_reported_only_it_is_left_told_once_and_shown_by_a_condition_until_it_is_well() -> None:
    def condition() -> tuple[str, str]:
        [found] = [one for one in here.service["status"]["conditions"] if one["type"] == "LoadBalancerDrifted"]
        return found["status"], found["reason"]

    here = world(Mode.REPORT)
    async with here.working():
        await here.served()
        tamper(here)
        await settle(3 * PERIOD)
        assert here.targets == ("n1", "n2")
        assert here.events.lines() == [REPORTED]
        assert here.outcomes.drifts == ["reported"]
        assert len(here.api.patches) == 1
        assert condition() == ("True", "ChangedInCloud")
        tamper(here, targets=("n1", "n2", "n3"))
        await settle(3 * PERIOD)
        assert condition() == ("False", "AsWritten")
        assert len(here.api.patches) == 2
        assert here.events.lines() == [REPORTED]
        assert here.cloud.mutations == []


async def test_switched_off_nothing_is_read() -> None:
    here = world(Mode.OFF)
    async with here.working():
        await here.served()
        tamper(here)
        await settle(5 * PERIOD)
        assert here.cloud.calls == []


@pytest.mark.parametrize(("backend", "verb"), [(OneByOne, "read"), (Mute, "ensure")])
async def test_a_backend_without_a_list_is_asked_for_one_a_second(backend: type[MemoryBackend], verb: str) -> None:
    here = world(backend=backend)
    async with here.working():
        create(here, 20)
        await settle(10)
        here.forget_history()
        times = CallTimes(here, verb)
        await settle(PERIOD)
        assert here.cloud.verbs().count(verb) == 20
        assert set(times.gaps()) == {1}
        assert here.events.lines() == []
        tamper(here, numbered(7))
        await settle(PERIOD + 25)
        assert here.cloud.load_balancers[CLUSTER, numbered(7)].targets == ("n1", "n2", "n3")
        assert here.outcomes.drifts == ["repaired"]
        assert here.events.reasons().count("LoadBalancerDrifted") == 1


async def test_a_mute_backend_reports_what_is_missing() -> None:
    here = world(Mode.REPORT, Mute)
    async with here.working():
        await here.served()
        del here.cloud.load_balancers[CLUSTER, UID]
        await settle(PERIOD + 5)
        assert here.events.reasons() == ["LoadBalancerDrifted"]
        assert here.cloud.load_balancers == {}


async def test_a_cloud_that_changes_it_back_after_each_repair_is_slowed_and_told_once() -> None:
    here = world()
    async with here.working():
        await here.served()
        times = CallTimes(here, "ensure")
        note, loop = here.cloud.on_call, asyncio.get_running_loop()

        def change_back(call: Call) -> None:
            note(call)
            if call.verb == "ensure":
                loop.call_later(1, tamper, here)

        here.cloud.on_call = change_back
        tamper(here)
        await settle(8 * 3600)
        first, second, third, *rest = times.gaps()
        assert max(first, second) <= PERIOD
        assert 2 * PERIOD <= third < 5 * PERIOD
        assert rest[-1] >= 3600
        assert here.events.reasons().count("LoadBalancerContested") == 1
        assert here.outcomes.contests == ["drift"]


async def test_a_list_that_lags_behind_is_no_drift() -> None:
    class Lagging(MemoryBackend):
        async def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
            async for page in super().read_load_balancers(uid):
                old = [dataclasses.replace(one, settings={**one.settings, "targets": ()}) for one in page]
                yield page if uid else old

    here = world(backend=Lagging)
    async with here.working():
        await here.served()
        await settle(3 * PERIOD)
        assert here.events.lines() == []
        assert set(here.cloud.verbs()) == {"list", "read"}


async def test_what_the_backend_leaves_as_it_is_is_no_drift_and_is_not_asked_for_again() -> None:
    class WantsMore(MemoryBackend):
        async def desired_settings(self, service: Service, nodes: Sequence[Node]) -> Settings:
            return {**await super().desired_settings(service, nodes), "firewall": "on"}

    here = world(backend=WantsMore)
    async with here.working():
        await here.served()
        await settle(5 * PERIOD)
        assert here.events.lines() == []
        assert here.outcomes.drifts == []
        assert here.cloud.verbs().count("ensure") == 1


async def test_a_service_that_is_changed_while_the_cloud_is_read_is_not_called_drifted() -> None:
    answer = asyncio.Event()

    class Slow(MemoryBackend):
        async def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
            pages = [page async for page in super().read_load_balancers(uid)]
            await answer.wait()
            for page in pages:
                yield page

    here = world(backend=Slow)
    async with here.working():
        await here.served()
        await settle(PERIOD)
        assert here.cloud.verbs() == ["list"]
        here.edit(builders.port(81))
        await settle(1)
        answer.set()
        await settle(1)
        assert here.outcomes.drifts == []
        assert here.cloud.verbs() == ["list", "ensure"], "what was read is old, and nobody is asked again for that"


@pytest.mark.parametrize("verb", ["list", "read"])
async def test_a_cloud_that_cannot_be_looked_at_disturbs_no_service_and_is_asked_again(verb: str) -> None:
    here = world()
    async with here.working():
        await here.served()
        here.cloud.script.then(verb, CloudUnreachableError("no answer"))
        tamper(here)
        await settle(PERIOD)
        assert here.events.lines() == []
        assert here.queue.failures(KEY) == 0
        await settle(PERIOD)
        assert REPAIRED in here.events.lines()


async def test_a_repair_that_the_cloud_refuses_fails_and_is_retried_as_any_ensure() -> None:
    here = world()
    async with here.working():
        await here.served()
        here.cloud.script.then("ensure", CCMError("quota"))
        tamper(here)
        await settle(PERIOD)
        assert "SyncLoadBalancerFailed" in here.events.reasons()
        assert here.targets == ("n1", "n2", "n3")


async def test_a_repair_whose_answer_is_lost_is_told_nevertheless() -> None:
    here = world()
    async with here.working():
        await here.served()
        here.cloud.script.then("ensure", Lost(CloudUnreachableError("lost")))
        tamper(here)
        await settle(PERIOD)
        assert REPAIRED in here.events.lines()
        assert here.outcomes.drifts == ["repaired"]


async def test_a_paused_service_is_not_repaired() -> None:
    here = world()
    async with here.working():
        await here.served()
        here.edit(builders.annotated("ccm-lb.dev/paused", "true"))
        await settle(1)
        here.forget_history()
        tamper(here)
        await settle(5 * PERIOD)
        assert here.targets == ("n1", "n2")
        assert set(here.cloud.verbs()) == {"list"}


async def test_without_the_lease_nobody_looks() -> None:
    here = world()
    async with here.working():
        await here.served()
    here.cloud.calls.clear()
    await settle(5 * PERIOD)
    assert here.cloud.calls == []


# ---- a restart


async def restarted(services: int) -> World:
    """Services that are served, and a new process that knows them; history is what it does."""
    here = world()
    async with here.working():
        create(here, services)
        await settle(30)
    here.start_process()
    here.list_everything()
    for number in range(services):
        service = here.api.object(KEY._replace(name=f"web-{number}"))
        assert service is not None
        here.controller.on_event("services", None, service)
    here.forget_history()
    return here


async def test_after_a_restart_what_is_as_it_was_is_read_in_pages_only() -> None:
    here = await restarted(250)
    async with here.working():
        await settle(5)
        assert here.cloud.verbs() == ["list"] * 3
        assert (here.cloud.mutations, here.api.patches, here.events.lines()) == ([], [], [])
        assert all(here.state.synced(service) for service in here.state.services)
        tamper(here, numbered(7))
        await settle(PERIOD)
        assert here.outcomes.drifts == ["repaired"]


async def test_after_a_restart_what_differs_is_ensured_and_told_as_ever() -> None:
    here = await restarted(5)
    tamper(here, numbered(1))
    del here.cloud.load_balancers[CLUSTER, numbered(2)]
    async with here.working():
        await settle(5)
        assert [call.uid for call in here.cloud.calls if call.verb == "ensure"] == [numbered(1), numbered(2)]
        assert here.cloud.changes() == ["UPDATE", "CREATE"]
        assert here.events.lines().count(ENSURING) == 2


@pytest.mark.parametrize("outcome", [asyncio.Event(), CCMError("no")], ids=["silent", "refused"])
async def test_after_a_restart_a_cloud_without_pages_is_asked_for_each(outcome: asyncio.Event | CCMError) -> None:
    here = await restarted(5)
    here.cloud.script.then("list", outcome)
    async with here.working():
        await settle(15)
        assert here.cloud.verbs().count("ensure") == 5
        assert (here.cloud.mutations, here.api.patches, here.events.lines()) == ([], [], [])


async def test_after_a_restart_new_services_do_not_wait_for_the_pages() -> None:
    here = await restarted(5)
    answer = here.slow("list")
    async with here.working():
        here.create(builders.named("new"), builders.uid(numbered(999)))
        await settle(1)
        assert (CLUSTER, numbered(999)) in here.cloud.load_balancers
        answer.set()
        await settle(1)
        assert here.cloud.verbs() == ["list", "ensure"]
