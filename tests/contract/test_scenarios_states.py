"""A cloud that accepts a change and carries it out later, or never: what is published, and what is asked for again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm_lb.errors import CCMError, RetryAfterError
from ccm_lb.testing import builders
from tests.contract.fakecloud_world import SERVICE, World, nodes

SERVED = builders.changed(SERVICE, builders.published({"ip": "203.0.113.1", "ipMode": "Proxy"}))
HEADERS = {"Authorization": "Bearer secret"}


async def order(world: World, method: str, outcome: str) -> str:
    """What the cloud does with the actions of such calls from now on; the fault's id."""
    body = {"match": {"methods": [method]}, "effect": {"kind": "action", "outcome": outcome, "message": "no capacity"}}
    url = f"{world.serving.url}/v1/faults"
    answer = await world.transport.request("POST", url, body=body, headers=HEADERS)
    assert answer.status == 201
    return str(answer.json()["id"])


async def forget(world: World, fault: str) -> None:
    await world.transport.request("DELETE", f"{world.serving.url}/v1/faults/{fault}", headers=HEADERS)


async def settled(world: World) -> dict[str, Any]:
    """The only load balancer, once the cloud has finished with it."""
    url = f"{world.serving.url}/v1/load-balancers"
    async with asyncio.timeout(20):
        while True:
            [found] = (await world.transport.request("GET", url, headers=HEADERS)).json()["items"]
            if found["state"] != "pending":
                return dict(found)
            await asyncio.sleep(0.02)


def changes(world: World) -> list[str]:
    """The methods of the backend's own writes so far, which are then forgotten."""
    sent = [method for method, body in world.transport.writes() if not (isinstance(body, dict) and "effect" in body)]
    world.transport.sent.clear()
    return sent


@pytest.mark.scenario("B18")
async def test_nothing_is_published_until_the_cloud_has_made_it_and_then_it_is_the_first_one(world: World) -> None:
    fault = await order(world, "POST", "pending")
    for _ in range(2):
        with pytest.raises(RetryAfterError, match="the cloud still works on the load balancer"):
            await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    await forget(world, fault)
    made = await settled(world)
    status = await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    assert [one.ip for one in status.ingress] == [one["address"] for one in made["addresses"]]
    assert changes(world) == ["POST", "DELETE"], "the latter is the fault's"


@pytest.mark.scenario("B41")
async def test_a_new_load_balancer_that_ends_in_an_error_is_replaced_and_not_published_before(world: World) -> None:
    fault = await order(world, "POST", "error")
    with pytest.raises(CCMError):
        await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    broken = await settled(world)
    await forget(world, fault)
    changes(world)
    with pytest.raises(CCMError, match="ended in an error and was removed"):
        await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    status = await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    assert changes(world) == ["DELETE", "POST"]
    made = await settled(world)
    assert made["id"] != broken["id"]
    assert [one.ip for one in status.ingress] == [one["address"] for one in made["addresses"]]


@pytest.mark.scenario("B41")
async def test_a_published_load_balancer_in_an_error_keeps_its_address_and_is_repaired(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVED, nodes(1))
    before = await settled(world)
    fault = await order(world, "PATCH", "error")
    with pytest.raises(CCMError):
        await world.backend.update_load_balancer(SERVED, nodes(1, 2))
    for _ in range(2):
        assert (await settled(world))["state"] == "error"
        with pytest.raises(CCMError, match="is in an error; its settings were sent again"):
            await world.backend.ensure_load_balancer(SERVED, nodes(1, 2))
    await settled(world)
    await forget(world, fault)
    changes(world)
    await world.backend.ensure_load_balancer(SERVED, nodes(1, 2))
    assert changes(world) == ["PATCH"]
    after = await settled(world)
    assert (after["state"], after["id"], after["addresses"]) == ("active", before["id"], before["addresses"])
    assert all(one["open"] for one in after["status"]["listeners"])
    await world.backend.ensure_load_balancer(SERVED, nodes(1, 2))
    assert changes(world) == []
