"""Several replicas: one works, the others are warm, and a hand-over takes seconds."""

import asyncio
import signal
import time

from tests.harness import objects
from tests.harness.controller import Controller
from tests.harness.stack import Stack

QUICK = ("--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=500ms")


async def holder(stack: Stack) -> str:
    lease = await stack.kube.find("coordination.k8s.io/v1/leases", "cloud-controller-manager", "kube-system")
    return str((lease or {}).get("spec", {}).get("holderIdentity", ""))


async def wait_holder(stack: Stack, other_than: str, timeout: float) -> str:
    async with asyncio.timeout(timeout):
        while (found := await holder(stack)) in ("", other_than):
            await asyncio.sleep(0.02)
    return found


async def two(stack: Stack, first: Controller, second: Controller) -> str:
    """Start both, the first of them leads; its identity."""
    await first.start_ready()
    leader = await wait_holder(stack, "", 10)
    await second.start_ready()
    return leader


async def test_a_killed_leader_is_followed_by_a_warm_replica_after_the_leases_expiry(stack: Stack) -> None:
    async with stack.controller(*QUICK, name="first") as first, stack.controller(*QUICK, name="second") as second:
        leader = await two(stack, first, second)
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await first.kill()
        began = time.monotonic()
        await stack.create(objects.service("later", {"http": 18090}))
        await stack.wait_served("later")
        assert await holder(stack) != leader
        assert time.monotonic() - began < 4 + 0.5 + 3, "the Lease's duration, one poll, and the work"
        assert len(await stack.cloud.load_balancers()) == 2


async def test_a_follower_writes_nothing(stack: Stack) -> None:
    async with stack.controller(*QUICK, name="first") as first, stack.controller(*QUICK, name="second") as second:
        await two(stack, first, second)
        for number in range(5):
            await stack.create(objects.service(f"web-{number}", {"http": 18080 + number}))
        for number in range(5):
            await stack.wait_served(f"web-{number}")
        creates = [one for one in await stack.cloud.mutations() if one["method"] == "POST"]
        assert len(creates) == 5
        assert second.logged("reconciling") == 0


async def test_a_leader_told_to_end_hands_over_at_once(stack: Stack) -> None:
    # A Lease that nobody could wait for: only its release explains a quick hand-over.
    slow = ("--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s", "--leader-elect-retry-period=1s")
    async with stack.controller(*slow, name="first") as first, stack.controller(*slow, name="second") as second:
        leader = await two(stack, first, second)
        await first.terminate()
        await wait_holder(stack, leader, 5)
        await stack.create(objects.service("web"))
        await stack.wait_served("web")


async def test_a_leader_that_slept_ends_instead_of_working_beside_its_successor(stack: Stack) -> None:
    async with stack.controller(*QUICK, name="first") as first, stack.controller(*QUICK, name="second") as second:
        leader = await two(stack, first, second)
        first.signal(signal.SIGSTOP)
        successor = await wait_holder(stack, leader, 12)
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        first.signal(signal.SIGCONT)
        assert await first.wait_ended() == 1
        assert first.logged("lost the Lease") == 1
        assert await holder(stack) == successor
        assert len(await stack.cloud.load_balancers()) == 1
