"""A load balancer is kept, taken over and asked for by address: the controller as a process, a genuine API server, fakecloud."""

import asyncio

import pytest

from tests.harness import objects
from tests.harness.controller import Controller
from tests.harness.stack import Stack, answer

KEEP, ADOPT = "ccm-lb.dev/keep", "ccm-lb.dev/adopt"
ADDRESSES, POOLS = "ccm-lb.dev/addresses", "ccm-lb.dev/address-pools"
WORKED = 'workqueue_work_duration_seconds_count{name="service"}'


async def verified(controller: Controller) -> None:
    """Wait until it has looked at what it found at its start, of which nothing is told; what is changed from then on is news."""
    async with asyncio.timeout(60):
        while (await controller.metrics()).get(WORKED, 0) < 1:
            await asyncio.sleep(0.05)


async def test_what_one_service_keeps_the_next_takes_over_and_clients_go_on(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web", annotations={KEEP: "true"}))
        served = await stack.wait_served("web")
        await stack.serve(served, "n1")
        assert await answer(served) == "n1"
        await stack.delete("web")
        await stack.wait_gone("web")
        [kept] = await stack.cloud.load_balancers()
        assert kept["owner"] is None
        assert await answer(served) == "n1"
        await stack.wait_event("web", "LoadBalancerKept")
        await controller.terminate()
    async with stack.controller(name="second") as controller:
        await controller.start_ready()
        created = await stack.create(objects.service("next", annotations={ADOPT: kept["id"]}))
        taken = await stack.wait_served("next")
        assert objects.ingress(taken)[0]["ip"] == objects.ingress(served)[0]["ip"]
        await stack.wait_event("next", "AdoptedLoadBalancer")
        await stack.serve(taken, "n1")
        assert await answer(taken) == "n1"
        assert [one["owner"]["uid"] for one in await stack.cloud.load_balancers()] == [created["metadata"]["uid"]]
        await stack.delete("next")
        await stack.wait_gone("next")
        await stack.wait_unbalanced()


async def test_another_owners_load_balancer_is_refused_by_an_event_and_stays_as_it_is(stack: Stack) -> None:
    foreign = {
        "name": "theirs",
        "owner": {"cluster": "another", "uid": "u"},
        "listeners": [{"port": 19000, "targetPort": 30000}],
    }
    theirs = await stack.cloud.request("POST", "/v1/load-balancers", foreign)
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web", annotations={ADOPT: theirs["id"]}))
        _, _, message = await stack.wait_event("web", "SyncLoadBalancerFailed")
        assert f'annotation {ADOPT} is "{theirs["id"]}", which cannot be taken over' in message
        assert "belongs to u of cluster another" in message
        [untouched] = await stack.cloud.load_balancers()
        assert untouched["etag"] == theirs["etag"]
        await stack.delete("web")
        await stack.wait_gone("web")
        assert len(await stack.cloud.load_balancers()) == 1


@pytest.mark.parametrize("how", ["annotation", "field", "pool"])
async def test_an_address_or_a_pool_is_asked_for_and_kept_over_a_restart_and_a_change_of_mind(
    stack: Stack, how: str
) -> None:
    pools = (await stack.cloud.request("GET", "/v1/address-pools"))["items"]
    asked = pools[0]["cidr"].rsplit(".", 1)[0] + ".77"
    if how == "pool":
        network = pools[0]["cidr"].split(".")
        other = f"127.{int(network[1]) - 3}.{network[2]}.0/29"
        await stack.cloud.request("POST", "/v1/address-pools", {"name": "front", "cidr": other})
        asked = other.removesuffix("0/29") + "1"
    annotations = {"annotation": {ADDRESSES: asked}, "pool": {POOLS: "front"}, "field": {}}[how]
    spec = {"loadBalancerIP": asked} if how == "field" else {}
    async with stack.controller() as controller:
        await controller.start_ready()
        created = await stack.create(objects.service("web", annotations=annotations, **spec))
        assert objects.ingress(await stack.wait_served("web"))[0]["ip"] == asked
        await controller.terminate()
    position = await stack.cloud.position()
    async with stack.controller(name="second") as controller:
        await controller.start_ready()
        await verified(controller)
        later = {ADDRESSES: None, POOLS: None} if how == "field" else {ADDRESSES: "127.84.255.1"}
        await stack.patch("web", {"metadata": {"annotations": later}, "spec": {"loadBalancerIP": None}})
        if how != "field":
            await stack.wait_event("web", "AddressNotGiven")
        await stack.patch("web", {"spec": {"ports": [{"name": "http", "port": 18081, "targetPort": 8080}]}})
        await stack.wait_balanced(created["metadata"]["uid"], lambda one: one["listeners"][0]["port"] == 18081)
        assert objects.ingress(await stack.get("web"))[0]["ip"] == asked
        await stack.cloud.verify(position, method="POST")
