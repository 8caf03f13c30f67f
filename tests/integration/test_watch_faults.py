"""A watch that lies: cut, silent, expired, doubled, out of order; and an API server or a cloud that goes away."""

import asyncio

import pytest

from tests.faultproxy.effects import Answer, DuplicateEvents, HoldEvents, InjectError, ReorderEvents
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import objects
from tests.harness.cloud import listeners, targets
from tests.harness.controller import Controller
from tests.harness.stack import SETTLE, Stack, answer

WATCHES = Match(watch=True)
SERVICES = Match(watch=True, path="/services$")
NODES = Match(watch=True, path="/nodes$")


async def change_everything_unseen(stack: Stack) -> None:
    """While the watch is away: a node goes and one comes, a Service vanishes with its finalizer stripped, a port changes."""
    await stack.remove_node("n2")
    await stack.add_node("n3")
    await stack.patch("old", {"metadata": {"finalizers": None}})
    await stack.delete("old")
    await stack.patch("web", {"spec": {"ports": [{"name": "http", "port": 18081, "targetPort": 8080}]}})


async def start(stack: Stack, controller: Controller) -> str:
    """Two nodes, the Services web and old, both served; the UID of web."""
    for node in ("n1", "n2"):
        await stack.add_node(node)
    await controller.start_ready()
    uid: str = (await stack.create(objects.service("web")))["metadata"]["uid"]
    await stack.create(objects.service("old", {"http": 18090}))
    await stack.wait_served("web")
    await stack.wait_served("old")
    return uid


async def assert_repaired(stack: Stack, uid: str, timeout: float = SETTLE) -> None:
    """Everything is as it should be, long before the resync of every five minutes could be the reason."""

    def repaired(load_balancer: objects.Json) -> bool:
        ports = [port for _, port, _ in listeners(load_balancer)]
        return targets(load_balancer) == stack.servers("n1", "n3") and ports == [18081]

    await stack.wait_balanced(uid, repaired, timeout)
    async with asyncio.timeout(timeout):
        while [one["owner"]["uid"] for one in await stack.cloud.load_balancers()] != [uid]:
            await asyncio.sleep(0.05)


@pytest.mark.scenario("B03")
@pytest.mark.parametrize("how", ["in the stream", "as an HTTP status"])
async def test_what_vanished_behind_an_expired_watch_is_noticed(stack: Stack, api_proxy: FaultProxy, how: str) -> None:
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        uid = await start(stack, controller)
        if how == "in the stream":
            closed = api_proxy.add(Rule(Answer(503), WATCHES))
            api_proxy.cut(WATCHES)
            await change_everything_unseen(stack)
            for watch in (SERVICES, NODES):
                api_proxy.add(Rule(InjectError(), watch, times=1))
            api_proxy.remove(closed)
        else:
            closed = api_proxy.add(Rule(Answer(410, "Expired"), WATCHES))
            api_proxy.cut(WATCHES)
            await change_everything_unseen(stack)
            api_proxy.remove(closed)
        lists_before = len(api_proxy.requests)
        await assert_repaired(stack, uid)
        assert len(api_proxy.requests) - lists_before < 300, "it asks in a tight loop"


async def test_a_cut_watch_loses_nothing(stack: Stack, api_proxy: FaultProxy) -> None:
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        uid = await start(stack, controller)
        api_proxy.cut(WATCHES, reset=True)
        await change_everything_unseen(stack)
        await assert_repaired(stack, uid)


@pytest.mark.scenario("B02")
@pytest.mark.timeout(400)
async def test_a_watch_that_goes_silent_is_opened_anew(stack: Stack, api_proxy: FaultProxy) -> None:
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        uid = await start(stack, controller)
        for watch in (SERVICES, NODES):
            await api_proxy.wait_for_open(watch)
        assert api_proxy.stall(WATCHES) >= 2
        await change_everything_unseen(stack)
        await assert_repaired(stack, uid, timeout=200)


@pytest.mark.parametrize("effect", [DuplicateEvents(3), ReorderEvents(3, 0.3)], ids=["doubled", "out of order"])
async def test_events_doubled_or_out_of_order_change_nothing(
    stack: Stack, api_proxy: FaultProxy, effect: DuplicateEvents | ReorderEvents
) -> None:
    api_proxy.add(Rule(effect, WATCHES))
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        uid = await start(stack, controller)
        for port in (18091, 18092, 18093, 18081):
            await stack.patch("web", {"spec": {"ports": [{"name": "http", "port": port, "targetPort": 8080}]}})
        await stack.wait_balanced(uid, lambda lb: [port for _, port, _ in listeners(lb)] == [18081])
        await stack.delete("web")
        await stack.wait_gone("web")
        await stack.delete("old")
        await stack.wait_gone("old")
        await stack.wait_unbalanced()
        creates = [
            one for one in await stack.cloud.mutations() if one["method"] == "POST" and "servers" not in one["path"]
        ]
        assert len(creates) == 2


async def test_a_late_event_of_a_deleted_service_makes_nothing(stack: Stack, api_proxy: FaultProxy) -> None:
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await start(stack, controller)
        old = await stack.get("old")
        await stack.delete("old")
        await stack.wait_gone("old")
        await api_proxy.wait_for_open(SERVICES)
        late = {"type": "MODIFIED", "object": {"apiVersion": "v1", "kind": "Service", **old}}
        assert await api_proxy.inject(late, SERVICES) == 1
        web = await stack.create(objects.service("after", {"http": 18095}))
        await stack.wait_served("after")
        owners = {one["owner"]["uid"] for one in await stack.cloud.load_balancers()}
        assert web["metadata"]["uid"] in owners
        assert old["metadata"]["uid"] not in owners


@pytest.mark.scenario("B11")
async def test_nodes_are_updated_while_the_service_watch_is_held_back(stack: Stack, api_proxy: FaultProxy) -> None:
    held = HoldEvents()
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await stack.add_node("n1")
        await controller.start_ready()
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait_served("web")
        api_proxy.add(Rule(held, SERVICES))
        api_proxy.cut(SERVICES)
        await stack.add_node("n2")
        await stack.wait_balanced(uid, lambda lb: targets(lb) == stack.servers("n1", "n2"))
        held.release()
        assert len(await stack.cloud.load_balancers()) == 1


async def test_an_api_server_that_restarts_is_found_again(stack: Stack) -> None:
    # A server that takes longer to start than the Lease can be kept without it rightly ends its holder.
    patient = ("--leader-elect-lease-duration=300s", "--leader-elect-renew-deadline=250s")
    async with stack.controller(*patient) as controller:
        await start(stack, controller)
        await stack.plane.restart_apiserver()
        await stack.create(objects.service("later", {"http": 18095}))
        await stack.wait_served("later")
        assert controller.pid is not None
        assert len(await stack.cloud.load_balancers()) == 3


async def test_a_cloud_that_restarts_has_kept_everything_and_serves_on(stack: Stack) -> None:
    async with stack.controller() as controller:
        await start(stack, controller)
        service = await stack.get("web")
        before = await stack.cloud.load_balancers()
        await stack.cloud.kill()
        created = await stack.create(objects.service("later", {"http": 18095}))
        await stack.wait_event("later", "SyncLoadBalancerFailed")
        await stack.cloud.start()
        await stack.serve(service, "n1", "n2")
        assert await answer(service) in ("n1", "n2")
        await stack.wait_served("later")
        after = {one["owner"]["uid"]: (one["id"], one["addresses"]) for one in await stack.cloud.load_balancers()}
        for one in before:
            assert after.pop(one["owner"]["uid"]) == (one["id"], one["addresses"])
        assert list(after) == [created["metadata"]["uid"]]


async def test_an_operators_log_has_no_errors_of_kopf_about_a_watch_that_heals(
    stack: Stack, api_proxy: FaultProxy
) -> None:
    api_proxy.add(Rule(Answer(403, "Forbidden"), SERVICES, times=2))
    async with stack.controller("-v=0", kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await api_proxy.wait_for_open(SERVICES)
        log = controller.log.read_text()
        assert [line for line in log.splitlines() if " ERROR " in line or " kopf." in line] == []
