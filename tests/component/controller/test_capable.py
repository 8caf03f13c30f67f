"""What a cloud cannot do is not asked of it, and its user is told; what can be done is done."""

from __future__ import annotations

import dataclasses

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.annotations import ProxyProtocol
from ccm_lb.backends.abilities import FAMILIES, Abilities
from ccm_lb.errors import PortsError, TerminalError
from ccm_lb.testing import builders
from tests.component.world import KEY, World

TCP, UDP = builders.port_json(80), builders.port_json(53, 30053, "UDP", "dns")
BOTH: builders.Tweak = {"spec": {"ports": [TCP, UDP]}}


@pytest.fixture
def world() -> World:
    world = World.reconciling()
    world.cloud.abilities = Abilities()
    return world


def warnings(world: World) -> list[str]:
    return [one.reason for one in world.events.all if one.type == "Warning"]


@pytest.mark.parametrize(
    ("able", "reason"),
    [
        pytest.param(Abilities(), "ProtocolNotSupported", id="no UDP"),
        pytest.param(
            Abilities(protocols=frozenset({"TCP", "UDP"})), "LoadBalancerMixedProtocolNotSupported", id="no mixture"
        ),
    ],
)
async def test_a_port_that_the_cloud_cannot_serve_is_refused_before_the_cloud_is_asked(
    world: World, able: Abilities, reason: str
) -> None:
    world.cloud.abilities = able
    world.create(BOTH)
    await world.failed(PortsError)
    assert world.cloud.calls == []
    assert world.condition is not None
    assert (world.condition["status"], world.condition["reason"]) == ("True", reason)
    assert warnings(world) == ["SyncLoadBalancerFailed"]


async def test_a_port_that_comes_later_is_left_out_and_named_while_the_others_follow(world: World) -> None:
    await world.reconciled()
    world.edit({"spec": {"ports": [{**TCP, "port": 81}, UDP]}})
    await world.reconcile()
    assert [one.listeners for one in world.cloud.load_balancers.values()] == [(("TCP", 81, 30080),)]
    assert world.ingress[0]["ports"] == [
        {"port": 81, "protocol": "TCP"},
        {"port": 53, "protocol": "UDP", "error": "ProtocolNotSupported"},
    ]
    assert warnings(world) == ["LoadBalancerPortsError"]
    await world.restarted()
    assert (world.api.patches, world.cloud.changes()) == ([], [])


async def test_a_family_that_the_cloud_has_not_is_an_error_of_the_service(world: World) -> None:
    world.create(builders.families("IPv6"))
    assert "load balancers for IPv4 alone" in await world.failed(TerminalError)
    assert world.cloud.calls == []
    assert warnings(world) == ["SyncLoadBalancerFailed"]


async def test_of_two_families_the_one_that_the_cloud_has_is_served_and_the_other_named(world: World) -> None:
    world.create(builders.families("IPv6", "IPv4"))
    await world.reconcile()
    assert [tuple(one.addresses) for one in world.cloud.load_balancers.values()] == [("IPv4",)]
    assert warnings(world) == ["AddressMissing"]


async def test_another_version_of_the_header_than_the_cloud_has_changes_nothing(world: World) -> None:
    world.cloud.abilities = Abilities(proxy_protocols=frozenset({ProxyProtocol.V1}))
    await world.reconciled()
    world.edit(builders.annotated(ccm_annotations.PROXY_PROTOCOL, "v2"))
    assert "the cloud has v1 alone" in await world.failed(TerminalError)
    assert world.cloud.changes() == []


@pytest.mark.parametrize("able", [Abilities(), Abilities(source_ranges=True)], ids=["no", "yes"])
async def test_source_ranges_are_enforced_where_abilities_say_so_and_traffic_says_nothing(
    world: World, able: Abilities
) -> None:
    world.cloud.abilities = able
    world.cloud.traffic = dataclasses.replace(world.cloud.traffic, enforces_source_ranges=None)
    world.create({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}})
    await world.reconcile()
    said = [one.message for one in world.events.all if one.reason == "IPModeConflict"]
    assert any("does not say" in one for one in said) is not able.source_ranges


async def test_of_more_nodes_than_the_cloud_takes_the_same_ones_are_chosen_again_and_that_is_said_once(
    world: World,
) -> None:
    world.cloud.abilities = Abilities(families=FAMILIES, max_targets=2)
    await world.reconciled()
    chosen = world.targets
    assert len(chosen) == 2
    world.edit(builders.annotated("example.com/any", "edit"), {"spec": {"ports": [{**TCP, "port": 82}]}})
    await world.reconcile()
    assert world.targets == chosen
    assert warnings(world) == []
    world.api.create(builders.node_json("n4"))
    await world.reconciler.reconcile(KEY)
    assert len(world.targets) == 2
    assert [one.message for one in world.events.all if one.reason == "TargetsLimited"] == [
        "The cloud takes 2 of the 4 nodes behind one load balancer: the others get no traffic from it"
    ]
