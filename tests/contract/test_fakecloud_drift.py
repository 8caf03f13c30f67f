"""What is changed in fakecloud past the controller is told by the backend's two sides, and put back by its ensure."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ccm_lb.backends import actual
from ccm_lb.backends.base import default_load_balancer_name
from ccm_lb.objects import Service
from ccm_lb.testing import builders
from fakecloud.cloud.intents import Intent
from fakecloud.models.inventory import Server
from fakecloud.models.loadbalancers import LoadBalancerPatch
from tests.contract.fakecloud_world import SERVICE, World, nodes

NAME = default_load_balancer_name(SERVICE)
RESTRICTED = builders.changed(SERVICE, {"spec": {"loadBalancerSourceRanges": ["127.0.0.0/8"]}})
LISTENER = {"protocol": "TCP", "port": 18080, "targetPort": 30080, "name": "http"}
TARGET = {"address": "127.0.0.11"}


async def told(world: World, service: Service) -> list[str]:
    found = [one async for page in world.backend.read_load_balancers(service.uid) for one in page]
    desired = await world.backend.desired_settings(service, nodes(1, 2))
    return [str(one) for one in actual.differences(desired, found[0] if found else None)]


async def change(world: World, body: dict[str, Any]) -> None:
    [existing] = world.serving.cloud.state.load_balancers
    await world.serving.cloud.patch_load_balancer(
        existing, LoadBalancerPatch.model_validate_json(json.dumps(body)), Intent()
    )


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"name": "mine"}, f"name is mine instead of {NAME}"),
        (
            {"listeners": [{**LISTENER, "port": 18081}]},
            "listeners is without TCP/18080 and with TCP/18081, which is not wanted",
        ),
        ({"listeners": [{**LISTENER, "targetPort": 1}]}, "listeners[TCP/18080].targetPort is 1 instead of 30080"),
        (
            {"listeners": [{**LISTENER, "proxyProtocol": "v2"}]},
            "listeners[TCP/18080].proxyProtocol is v2 instead of none",
        ),
        (
            {"listeners": [{**LISTENER, "healthCheck": {"port": 1}}]},
            "listeners[TCP/18080].healthCheck is its own instead of not set",
        ),
        ({"targets": []}, "targets is without 127.0.0.11, 127.0.0.12"),
        ({"targets": [TARGET]}, "targets is without 127.0.0.12"),
        (
            {"targets": [{**TARGET, "weight": 0}, {"address": "127.0.0.12"}]},
            "targets is without 127.0.0.11 and with 127.0.0.11 (weight=0), which is not wanted",
        ),
        ({"sourceRanges": []}, "sourceRanges is without 127.0.0.0/8"),
        ({"healthCheck": {"protocol": "tcp", "port": 9}}, "healthCheck.port is 9 instead of not set"),
        ({"healthCheck": None}, "healthCheck.protocol is not set instead of tcp"),
        ({"sessionAffinity": {"timeoutSeconds": 5}}, "sessionAffinity.type is ClientIP instead of not set"),
        ({"tags": {}}, "tags[kubernetes.io/service] is not set instead of lb/web"),
    ],
    ids=str,
)
async def test_each_setting_is_told_and_put_back(world: World, body: dict[str, Any], expected: str) -> None:
    status = await world.backend.ensure_load_balancer(RESTRICTED, nodes(1, 2))
    assert await told(world, RESTRICTED) == []
    await change(world, body)
    assert (await told(world, RESTRICTED))[0] == expected
    assert await world.backend.ensure_load_balancer(RESTRICTED, nodes(1, 2)) == status
    assert await told(world, RESTRICTED) == []


async def test_a_deleted_load_balancer_is_missing_and_made_again(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1, 2))
    [existing] = world.serving.cloud.state.load_balancers
    await world.serving.cloud.delete_load_balancer(existing, Intent())
    assert await told(world, SERVICE) == ["the load balancer is missing"]
    await world.backend.ensure_load_balancer(SERVICE, nodes(1, 2))
    assert await told(world, SERVICE) == []


async def test_what_the_operators_of_the_cloud_choose_is_no_difference(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1, 2))
    body = {"algorithm": "source-hash", "connectionLimit": 9, "healthCheck": {"intervalSeconds": 60}}
    await change(world, {**body, "tags": {"kubernetes.io/service": "lb/web", "team": "shop"}})
    assert await told(world, SERVICE) == []


async def test_what_the_cloud_refused_is_no_difference_and_is_not_written_again_and_again(world: World) -> None:
    both = builders.changed(SERVICE, {"spec": {"ports": [builders.port_json(18080), builders.port_json(18081, 30081)]}})
    unknown = builders.node("n9", {"spec": {"providerID": "fakecloud://n9"}})
    await world.backend.ensure_load_balancer(both, [*nodes(1), unknown])
    found = [one async for page in world.backend.read_load_balancers(both.uid) for one in page]
    desired = await world.backend.desired_settings(both, [*nodes(1), unknown])
    assert actual.differences(desired, found[0]) == ()
    world.transport.sent.clear()
    await world.backend.ensure_load_balancer(both, [*nodes(1), unknown])
    assert [body for method, body in world.transport.writes()] == [
        {"targets": [{"address": "127.0.0.11"}, {"server": "n9"}]}
    ], "the server may be known by now, so it is asked for once"
    await world.serving.cloud.add_server(Server(id="n9", name="n9", addresses=("127.0.0.19",)))
    await world.backend.ensure_load_balancer(both, [*nodes(1), unknown])
    assert "n9" in str(await world.backend.desired_settings(both, [*nodes(1), unknown]))


async def test_all_are_read_in_pages_of_a_hundred(world: World) -> None:
    for number in range(101):
        await world.backend.ensure_load_balancer(
            builders.changed(SERVICE, builders.uid(f"u{number}"), builders.port(18080)), ()
        )
    world.transport.sent.clear()
    pages = [len(page) async for page in world.backend.read_load_balancers()]
    assert pages == [100, 1]
    assert len(world.transport.sent) == 2
