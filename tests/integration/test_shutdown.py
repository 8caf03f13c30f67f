"""SIGTERM: what runs is finished or left in a state that the next start repairs, the Lease is given back, within 10 seconds."""

import asyncio
import signal
import time

from tests.faultproxy.effects import Delay, Stall
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import objects
from tests.harness.stack import Stack


async def holder_of_the_lease(stack: Stack) -> str:
    lease = await stack.kube.get("coordination.k8s.io/v1/leases", "cloud-controller-manager", "kube-system")
    return str(lease["spec"].get("holderIdentity", ""))


async def test_an_idle_controller_ends_at_once_and_gives_the_lease_back(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        began = time.monotonic()
        controller.signal(signal.SIGTERM)
        assert await controller.wait_ended() == 0
        assert time.monotonic() - began < 4
        assert await holder_of_the_lease(stack) == ""


async def test_a_call_that_hangs_is_abandoned_and_the_next_start_finishes_it(
    stack: Stack, cloud_proxy: FaultProxy
) -> None:
    async with stack.controller(cloud_url=cloud_proxy.url) as controller:
        await controller.start_ready()
        hang = cloud_proxy.add(Rule(Stall(), Match(method="POST")))
        await stack.create(objects.service("web"))
        await cloud_proxy.wait_for(Match(method="POST"))
        began = time.monotonic()
        controller.signal(signal.SIGTERM)
        assert await controller.wait_ended() == 0
        assert time.monotonic() - began < 10
        assert await holder_of_the_lease(stack) == ""
        cloud_proxy.remove(hang)
        await controller.terminate()
        await controller.start_ready()
        await stack.wait_served("web")
        assert len(await stack.cloud.load_balancers()) == 1


async def test_a_call_that_runs_is_finished_before_the_end(stack: Stack, cloud_proxy: FaultProxy) -> None:
    async with stack.controller(cloud_url=cloud_proxy.url) as controller:
        await controller.start_ready()
        cloud_proxy.add(Rule(Delay(2.0), Match(method="POST")))
        await stack.create(objects.service("web"))
        await cloud_proxy.wait_for(Match(method="POST"))
        controller.signal(signal.SIGTERM)
        assert await controller.wait_ended() == 0
        assert objects.ingress(await stack.get("web")), "the status was written before the end"


async def test_a_second_signal_ends_it_at_once(stack: Stack, cloud_proxy: FaultProxy) -> None:
    async with stack.controller(cloud_url=cloud_proxy.url) as controller:
        await controller.start_ready()
        cloud_proxy.add(Rule(Stall(), Match(method="POST")))
        await stack.create(objects.service("web"))
        await cloud_proxy.wait_for(Match(method="POST"))
        controller.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            while not controller.logged("stopping"):
                await asyncio.sleep(0.02)
        began = time.monotonic()
        controller.signal(signal.SIGTERM)
        assert await controller.wait_ended() == 128 + signal.SIGTERM
        assert time.monotonic() - began < 1
