"""Several replicas: one works, the others are warm, and the Lease says who. To the second it is tested on virtual time."""

import asyncio
import contextlib
import datetime as dt
import signal
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest

from tests.faultproxy.effects import Answer
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import objects
from tests.harness.cloud import Json
from tests.harness.controller import Controller
from tests.harness.stack import SETTLE, Stack

# A holder that a busy machine lets wait for seconds must not lose its Lease.
QUICK = ("--leader-elect-lease-duration=9s", "--leader-elect-renew-deadline=8s", "--leader-elect-retry-period=500ms")
# Only its release explains that somebody else has this Lease within `SETTLE`.
SLOW = ("--leader-elect-lease-duration=300s", "--leader-elect-renew-deadline=250s", "--leader-elect-retry-period=1s")


class Replicas(NamedTuple):
    """The first one leads."""

    first: Controller
    second: Controller
    leader: str


@contextlib.asynccontextmanager
async def two(stack: Stack, *flags: str) -> AsyncIterator[Replicas]:
    async with stack.controller(*flags, name="first") as first:
        await first.start_ready()
        leader = await wait_holder(stack, "")
        async with stack.controller(*flags, name="second") as second:
            await second.start_ready()
            yield Replicas(first, second, leader)


async def lease(stack: Stack) -> Json:
    """The spec of the Lease, empty before there is one."""
    found = await stack.kube.find("coordination.k8s.io/v1/leases", "cloud-controller-manager", "kube-system")
    spec: Json = (found or {}).get("spec", {})
    return spec


async def wait_holder(stack: Stack, other_than: str) -> str:
    async with asyncio.timeout(SETTLE):
        while (found := str((await lease(stack)).get("holderIdentity", ""))) in ("", other_than):
            await asyncio.sleep(0.02)
    return found


async def test_a_killed_leader_is_followed_by_a_warm_replica_after_the_leases_expiry(stack: Stack) -> None:
    async with two(stack, *QUICK) as (first, second, leader):
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await first.kill()
        left = await lease(stack)
        await stack.create(objects.service("later", {"http": 18090}))
        await stack.wait_served("later")
        taken = await lease(stack)
        assert taken["holderIdentity"] != leader
        assert second.logged("became the leader") == 1, "it was there all the time"
        waited = dt.datetime.fromisoformat(taken["acquireTime"]) - dt.datetime.fromisoformat(left["renewTime"])
        assert waited.total_seconds() >= left["leaseDurationSeconds"], "nobody takes a Lease that may still be held"
        assert len(await stack.cloud.load_balancers()) == 2


async def test_a_follower_writes_nothing(stack: Stack) -> None:
    async with two(stack) as (_, second, _):
        for number in range(5):
            await stack.create(objects.service(f"web-{number}", {"http": 18080 + number}))
        for number in range(5):
            await stack.wait_served(f"web-{number}")
        creates = [one for one in await stack.cloud.mutations() if one["method"] == "POST"]
        assert len(creates) == 5
        assert second.logged("reconciling") == 0


async def test_a_leader_told_to_end_hands_over_without_waiting_for_the_leases_expiry(stack: Stack) -> None:
    async with two(stack, *SLOW) as (first, _, leader):
        await first.terminate()
        await wait_holder(stack, leader)
        await stack.create(objects.service("web"))
        await stack.wait_served("web")


async def test_a_leader_that_slept_ends_instead_of_working_beside_its_successor(stack: Stack) -> None:
    async with two(stack, *QUICK) as (first, _, leader):
        first.signal(signal.SIGSTOP)
        successor = await wait_holder(stack, leader)
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        first.signal(signal.SIGCONT)
        assert await first.wait_ended() == 1
        assert first.logged("lost the Lease") == 1
        assert (await lease(stack))["holderIdentity"] == successor
        assert len(await stack.cloud.load_balancers()) == 1


async def wait_refused(controller: Controller) -> str:
    """What /readyz says of the Lease once it was asked for in vain."""
    async with asyncio.timeout(SETTLE):
        while "; grant " not in (said := (await controller.get("/readyz/lease"))[1]):
            assert controller.pid is not None, controller.last_words()
            await asyncio.sleep(0.05)
    return said


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        pytest.param(
            "--leader-elect-resource-name=another", 'leases.coordination.k8s.io "another" is forbidden', id="no right"
        ),
        pytest.param("--leader-elect-resource-namespace=nowhere", "forbidden", id="no right in that namespace"),
    ],
)
async def test_a_replica_that_may_not_have_its_lease_is_not_ready_and_says_why(
    stack: Stack, flag: str, reason: str
) -> None:
    async with stack.controller(*QUICK, flag) as controller:
        controller.start()
        said = await wait_refused(controller)
        assert reason in said
        assert "--leader-elect-resource-name" in said
        assert (await controller.get("/readyz"))[0] == 503
        assert (await controller.get("/livez"))[0] == 200, "a restart would not help"
        assert controller.logged("ERROR") == 1


async def test_a_lease_that_the_api_server_finds_invalid_is_said_until_it_is_not(
    stack: Stack, api_proxy: FaultProxy
) -> None:
    refusal = Answer(422, "Invalid", 'Lease "cloud-controller-manager" is invalid: spec.strategy: Required value')
    fault = api_proxy.add(Rule(refusal, Match(path="/leases")))
    async with stack.controller(*QUICK, kubeconfig=stack.through(api_proxy)) as controller:
        controller.start()
        assert "spec.strategy: Required value" in await wait_refused(controller)
        assert (await controller.get("/readyz"))[0] == 503
        api_proxy.remove(fault)
        await controller.wait_ready()


@pytest.mark.parametrize("flag", ["--leader-elect-resource-name=Not_A_Name", "--leader-elect-resource-namespace=a/b"])
async def test_a_lease_whose_name_is_none_is_named_at_the_start(stack: Stack, flag: str) -> None:
    async with stack.controller(flag) as controller:
        controller.start()
        assert await controller.wait_ended() == 2
        assert f"{flag.partition('=')[0]}: got" in controller.last_words()


async def test_a_lease_in_a_namespace_that_does_not_exist_is_said(stack: Stack) -> None:
    flag = "--leader-elect-resource-namespace=nowhere"
    async with stack.controller(*QUICK, flag, kubeconfig=stack.plane.kubeconfig) as controller:
        controller.start()
        assert 'namespaces "nowhere" not found' in await wait_refused(controller)
        assert (await controller.get("/readyz"))[0] == 503
