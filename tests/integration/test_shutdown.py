"""SIGTERM: what runs is finished or left in a state that the next start repairs, the Lease is given back, within 10 seconds."""

import signal

from ccm_lb import app
from ccm_lb.kube import leaderelection
from ccm_lb.settings.config import Config
from tests.harness import objects
from tests.harness.stack import Stack

ABANDONED = "running calls are abandoned"
CREATES = {"methods": ["POST"], "path": "/v1/load-balancers"}


async def holder_of_the_lease(stack: Stack) -> str:
    lease = await stack.kube.get("coordination.k8s.io/v1/leases", "cloud-controller-manager", "kube-system")
    return str(lease["spec"].get("holderIdentity", ""))


def test_what_an_end_may_wait_for_is_over_within_ten_seconds() -> None:
    """By the limits themselves: a clock would measure how busy the machine is."""
    config = Config.model_validate({"cloud_provider": "fakecloud"})
    # Events are written and the watch ends in the second after the grace; giving the Lease back comes last.
    assert config.shutdown_grace + max(app._LAST_EVENTS, app._WATCH_END, leaderelection.RELEASE_TIMEOUT) <= 10


async def test_an_idle_controller_ends_without_waiting_and_gives_the_lease_back(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        controller.signal(signal.SIGTERM)
        assert await controller.wait_ended() == 0
        assert controller.logged("stopping") == 1
        assert controller.logged(ABANDONED) == 0
        assert await holder_of_the_lease(stack) == ""


async def test_a_call_that_hangs_is_abandoned_and_the_next_start_finishes_it(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        hang = await stack.cloud.fault("hang", match=CREATES)
        await stack.create(objects.service("web"))
        await stack.cloud.wait_struck(hang)
        controller.signal(signal.SIGTERM)
        assert await controller.wait_ended() == 0
        assert controller.logged(ABANDONED) == 1
        assert await holder_of_the_lease(stack) == ""
        await stack.cloud.mend(hang)
        await controller.start_ready()
        await stack.wait_served("web")
        assert len(await stack.cloud.load_balancers()) == 1


async def test_a_call_that_runs_is_finished_before_the_end(stack: Stack) -> None:
    async with stack.controller("--shutdown-grace=60s") as controller:
        await controller.start_ready()
        slow = await stack.cloud.fault("latency", match=CREATES, seconds=2.0, times=1)
        await stack.create(objects.service("web"))
        await stack.cloud.wait_struck(slow)
        controller.signal(signal.SIGTERM)
        assert await controller.wait_ended() == 0
        assert controller.logged(ABANDONED) == 0
        assert objects.ingress(await stack.get("web")), "the status was written before the end"


async def test_a_second_signal_ends_it_at_once(stack: Stack) -> None:
    async with stack.controller("--shutdown-grace=200s") as controller:
        await controller.start_ready()
        hang = await stack.cloud.fault("hang", match=CREATES)
        await stack.create(objects.service("web"))
        await stack.cloud.wait_struck(hang)
        controller.signal(signal.SIGTERM)
        await controller.wait_logged("stopping")
        controller.signal(signal.SIGTERM)
        assert await controller.wait_ended() == 128 + signal.SIGTERM
        assert await holder_of_the_lease(stack) != "", "it gave nothing back: it waited for nothing"
