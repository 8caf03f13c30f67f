"""A cloud whose lists and reads lag, and whose actions take their time or fail, by fakecloud's own faults."""

from tests.harness import objects
from tests.harness.cloud import listeners
from tests.harness.stack import Stack


async def test_a_list_that_lags_makes_no_second_load_balancer_and_hides_no_change(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        since, lagging = await stack.cloud.position(), await stack.cloud.fault("stale-lists", seconds=3600)
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait_served("web")
        await stack.patch("web", {"spec": {"ports": [{"name": "http", "port": 18081, "targetPort": 8080}]}})
        await stack.wait_event("web", "EnsuredLoadBalancer")
        await stack.cloud.mend(lagging)
        await stack.wait_balanced(uid, lambda lb: [port for _, port, _ in listeners(lb)] == [18081])
        await stack.cloud.verify(since, exactly=1, method="POST", applied=True)
        await stack.delete("web")
        await stack.wait_gone("web")
        assert await stack.cloud.load_balancers() == []


async def test_reads_that_lag_do_not_make_a_restarted_controller_write(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        lagging = await stack.cloud.fault("stale-reads", seconds=3600)
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        before = objects.ingress(await stack.wait_served("web"))
        await controller.terminate()
        since = await stack.cloud.position()
        await controller.start_ready()
        await stack.create(objects.service("later", {"http": 18090}))
        await stack.wait_served("later")
        await stack.cloud.verify(since, owner=uid, applied=True)
        assert objects.ingress(await stack.get("web")) == before
        await stack.cloud.mend(lagging)
        assert len(await stack.cloud.load_balancers()) == 2


async def test_what_a_lagging_list_does_not_show_yet_is_deleted_with_its_service(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        lagging = await stack.cloud.fault("stale-lists", seconds=3600)
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await stack.delete("web")
        await stack.wait_gone("web")
        await stack.cloud.mend(lagging)
        assert await stack.cloud.load_balancers() == []


async def test_an_address_is_published_when_the_cloud_has_finished_its_work(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        since = await stack.cloud.position()
        pending = await stack.cloud.fault("action", outcome="pending", match={"methods": ["POST"]})
        await stack.create(objects.service("web"))
        kind, _, message = await stack.wait_event("web", "WaitingForLoadBalancer")
        assert (kind, "still works on" in message) == ("Normal", True)
        assert objects.ingress(await stack.get("web")) == []
        await stack.cloud.mend(pending)
        await stack.wait_served("web")
        await stack.cloud.verify(since, exactly=1, applied=True)


async def test_what_the_cloud_fails_on_is_said_and_asked_for_again(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        match = {"methods": ["POST"]}
        await stack.cloud.fault("action", match=match, outcome="error", message="no capacity", times=1)
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        kind, _, message = await stack.wait_event("web", "SyncLoadBalancerFailed")
        assert (kind, "in an error" in message) == ("Warning", True)
        service = await stack.wait_served("web")
        load_balancer = await stack.wait_balanced(uid, lambda lb: lb["state"] == "active")
        assert len(await stack.cloud.load_balancers()) == 1
        assert objects.ingress(service)[0]["ip"] == load_balancer["addresses"][0]["address"]
