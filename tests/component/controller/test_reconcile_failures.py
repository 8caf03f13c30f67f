"""Making a load balancer when something fails: what is said, and what is left."""

from __future__ import annotations

import asyncio

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.base import BackendContext
from ccm_lb.controller.reconcile import Dependencies, Reconciler
from ccm_lb.errors import ApiError, CCMError, ImplementedElsewhereError, NotLeaderError, RetryAfterError, TerminalError
from ccm_lb.objects import CLEANUP_FINALIZER, LoadBalancerIngress, LoadBalancerStatus, Service
from ccm_lb.redaction import Secrets
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import FakeClock
from ccm_lb.testing.memory import MemoryBackend, MemoryConfig
from ccm_lb.testing.script import Late, Lost
from ccm_lb.testing.transports import NoTransport
from tests.component.world import CLUSTER, ENSURING, World

# ---- ensure, and something fails


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(CCMError("quota exceeded"), "quota exceeded", id="words"),
        pytest.param(ValueError(), "ValueError", id="no-words"),
    ],
)
async def test_a_failed_ensure_is_said_with_upstreams_words(world: World, error: Exception, said: str) -> None:
    world.create()
    world.cloud.script.then("ensure", error)
    await world.failed()
    assert world.events.lines()[-1] == (
        f"Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: {said}"
    )


async def test_a_failure_to_put_the_finalizer_on_is_said_with_upstreams_words(world: World) -> None:
    world.create()
    world.api.script.then("patch_service_status", ApiError("etcd is slow", status=500))
    assert await world.failed() == "failed to add load balancer cleanup finalizer: etcd is slow"


@pytest.mark.scenario("B06")
async def test_a_failed_ensure_leaves_what_served(world: World) -> None:
    await world.reconciled()
    before = dict(world.cloud.load_balancers)
    world.edit(builders.port(81))
    world.cloud.script.then("ensure", CCMError("firewall unreadable"))
    await world.failed()
    assert world.cloud.load_balancers == before
    assert world.ingress
    assert world.cloud.changes() == []


@pytest.mark.scenario("B18")
async def test_a_create_whose_answer_was_lost_is_found_again(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", *[Lost(TimeoutError("no answer"))] * 3)
    for _ in range(3):
        await world.failed()
    await world.reconcile()
    assert world.cloud.changes() == ["CREATE"]
    assert world.ingress


async def test_a_cloud_at_work_is_waited_for_without_a_warning(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", RetryAfterError("it is being built", 15))
    with pytest.raises(RetryAfterError) as caught:
        await world.reconcile()
    assert caught.value.delay == 15
    assert world.events.lines() == [
        ENSURING,
        "Normal WaitingForLoadBalancer Waiting for the load balancer: it is being built",
    ]


async def test_a_terminal_error_is_handed_on_as_such(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", TerminalError("SCTP is not available"))
    await world.failed(TerminalError)
    assert world.events.reasons()[-1] == "SyncLoadBalancerFailed"


@pytest.mark.scenario("B06")
async def test_a_terminal_error_leaves_what_served(world: World) -> None:
    await world.reconciled()
    world.edit(builders.annotated(ccm_annotations.PROXY_PROTOCOL, "v3"))
    await world.failed(TerminalError)
    assert world.ingress
    assert world.cloud.changes() == []


async def test_a_service_that_is_implemented_elsewhere_counts_as_synced(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", ImplementedElsewhereError())
    await world.reconcile()
    assert world.events.lines() == [ENSURING]
    assert (world.ingress, world.finalizers) == ([], [CLEANUP_FINALIZER])
    world.forget_history()
    await world.reconcile()
    assert world.cloud.calls == []


async def test_a_service_deleted_after_a_finalizer_whose_answer_was_lost_is_not_ensured(world: World) -> None:
    world.create()
    world.hold_watch()
    world.api.script.then("patch_service_status", Lost(ApiError("cut", status=500)))
    await world.failed()
    world.delete()
    await world.reconcile()
    assert world.cloud.calls == []
    await world.reconcile()
    assert world.gone


async def test_a_cancelled_reconcile_says_nothing(world: World) -> None:
    world.create()
    world.cloud.script.then("ensure", asyncio.Event())
    task = asyncio.create_task(world.reconcile())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.events.lines() == [ENSURING]


# ---- what the backend answers


@pytest.mark.scenario("B77")
async def test_a_hostname_is_published_without_ip_mode(world: World) -> None:
    ingress = LoadBalancerIngress(hostname="lb.example.com", ip_mode="Proxy")
    answering(world, LoadBalancerStatus(ingress=(ingress,)))
    world.create()
    await world.reconcile()
    assert world.ingress == [{"hostname": "lb.example.com"}]


async def test_an_answer_that_is_no_status_is_upstreams_error(world: World) -> None:
    answering(world, None)
    world.create()
    await world.failed()
    assert world.events.lines()[-1] == (
        "Warning SyncLoadBalancerFailed Error syncing load balancer: "
        "service status returned by EnsureLoadBalancer is nil"
    )
    assert world.ingress == []


@pytest.mark.parametrize(
    ("ingress", "said"),
    [
        pytest.param(LoadBalancerIngress(ip="not an address"), "not an address", id="not-an-ip"),
        pytest.param(LoadBalancerIngress(), "neither ip nor hostname", id="empty"),
    ],
)
async def test_an_unusable_address_is_not_published(world: World, ingress: LoadBalancerIngress, said: str) -> None:
    answering(world, LoadBalancerStatus(ingress=(ingress,)))
    world.create()
    assert said in await world.failed()
    assert world.ingress == []


def answering(world: World, answer: LoadBalancerStatus | None) -> None:
    """From now on `ensure` answers this, whatever the cloud did."""

    class Answering(MemoryBackend):
        async def ensure_load_balancer(self, service: Service, nodes: object) -> LoadBalancerStatus:
            return answer  # type: ignore[return-value]

    context = BackendContext(
        CLUSTER, MemoryConfig(cloud=world.cloud), NoTransport(), FakeClock(), world.events, Secrets()
    )
    deps = Dependencies(world.api, Answering(context), world.events, world.fence, world.outcomes, "ccm-lb")
    world.reconciler = Reconciler(deps, world.state)


# ---- the lease


async def test_without_the_lease_nothing_is_written(world: World) -> None:
    world.create()
    world.fence.held = False
    await world.failed(NotLeaderError)
    assert (world.api.patches, world.cloud.calls) == ([], [])
    assert world.events.reasons() == ["EnsuringLoadBalancer"]


@pytest.mark.parametrize(
    "lost_in", [pytest.param("ensure", id="in-the-cloud-call"), pytest.param("patch_service_status", id="in-a-patch")]
)
async def test_a_lease_lost_on_the_way_stops_what_comes_after(world: World, lost_in: str) -> None:
    world.create()
    answer = asyncio.Event()
    (world.cloud if lost_in == "ensure" else world.api).script.then(lost_in, Late(answer))
    task = asyncio.create_task(world.reconcile())
    await asyncio.sleep(0.01)
    world.fence.held = False
    answer.set()
    with pytest.raises(NotLeaderError):
        await task
    assert world.ingress == []
    assert "SyncLoadBalancerFailed" not in world.events.reasons()


async def test_a_vanished_service_is_left_alone_without_the_lease(world: World) -> None:
    await world.reconciled()
    world.vanish()
    world.fence.held = False
    await world.failed(NotLeaderError)
    assert world.cloud.changes() == []


async def test_a_service_that_goes_back_after_a_lost_answer_takes_the_cloud_along(world: World) -> None:
    await world.reconciled()
    world.edit(builders.port(81))
    world.cloud.script.then("ensure", Lost(CCMError("connection reset")))
    await world.failed()
    world.edit(builders.port(80))
    await world.reconcile()
    [load_balancer] = world.cloud.load_balancers.values()
    assert [port for _, port, _ in load_balancer.listeners] == [80]
