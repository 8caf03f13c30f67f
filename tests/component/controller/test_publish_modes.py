"""Which ipMode is published, and what the user is told of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.annotations import ProxyProtocol
from ccm_lb.controller.publish import Policy
from ccm_lb.errors import TerminalError
from ccm_lb.ipmode import Delivery, ServiceProxyHint, Traffic
from ccm_lb.objects import IPMode
from ccm_lb.testing import builders
from tests.component.world import CLUSTER, ENSURED, ENSURING, UID, World

IP = "203.0.113.1"
PROXY, VIP = {"ip": IP, "ipMode": "Proxy"}, {"ip": IP, "ipMode": "VIP"}


def annotated(value: str | None) -> builders.Tweak:
    return builders.annotated(ccm_annotations.IP_MODE, value)


def headers(value: str | None, ports: str | None = None) -> tuple[builders.Tweak, ...]:
    return (
        builders.annotated(ccm_annotations.PROXY_PROTOCOL, value),
        builders.annotated(ccm_annotations.PROXY_PROTOCOL_PORTS, ports),
    )


def several(*ports: int) -> builders.Tweak:
    return {"spec": {"ports": [builders.port_json(port, 30000 + port, name=f"p{port}") for port in ports]}}


def messages(world: World, reason: str) -> list[str]:
    return [one.message for one in world.events.all if one.reason == reason]


# ---- the choice, and when it is told


async def test_the_choice_is_told_with_its_reason_once_for_each_change(world: World) -> None:
    await world.reconciled()
    world.edit(builders.port(81))
    await world.reconcile()
    assert world.events.lines() == [ENSURING, ENSURED]
    world.edit(annotated("VIP"))
    await world.reconcile()
    assert world.events.lines()[-1] == (
        f"Normal IPModeChosen ipMode VIP for {IP}: the annotation ccm-lb.dev/ip-mode says so"
    )
    assert world.ingress == [VIP]


async def test_a_restart_that_changes_nothing_tells_nothing(world: World) -> None:
    await world.reconciled()
    await world.restarted()
    assert (world.events.all, world.api.patches) == ([], [])
    world.edit(builders.port(81))
    await world.reconcile()
    assert world.events.lines() == [ENSURING, ENSURED]


async def test_a_restart_that_finds_another_mode_tells_it(world: World) -> None:
    await world.reconciled()
    world.cloud.ip_mode = IPMode.VIP
    await world.restarted()
    assert world.ingress == [VIP]
    assert messages(world, "IPModeChosen") == [
        f"ipMode VIP for {IP}: it is the provider's default for public addresses"
    ]


@pytest.mark.scenario("B13")
async def test_with_ipvs_and_probes_from_the_address_the_first_write_is_proxy() -> None:
    world = World.reconciling(Policy(service_proxy=lambda: ServiceProxyHint.IPVS))
    world.cloud.ip_mode = IPMode.VIP
    world.cloud.traffic = Traffic(Delivery.REWRITTEN, probes_from_own_address=True)
    world.create()
    await world.reconcile()
    [written] = [patch["status"] for patch in world.api.patches if "status" in patch]
    assert written == {"loadBalancer": {"ingress": [PROXY]}}


@pytest.mark.scenario("B83")
async def test_a_cloud_that_probes_its_own_address_gets_vip_also_with_ipvs() -> None:
    world = World.reconciling(Policy(service_proxy=lambda: ServiceProxyHint.IPVS))
    world.cloud.ip_mode = None
    world.cloud.traffic = Traffic(Delivery.KEPT, probes_to_own_address=True)
    world.create({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31555}})
    await world.reconcile()
    assert world.ingress == [VIP]


@pytest.mark.scenario("B23")
async def test_the_default_the_annotation_and_a_removed_default_hold_for_header_and_mode_alike(world: World) -> None:
    world.cloud.ip_mode = IPMode.VIP
    world.cloud.proxy_protocol = ProxyProtocol.V2
    world.create()
    await world.reconcile()
    seen: list[Any] = [(world.cloud.load_balancers[CLUSTER, UID].proxy_protocol, world.ingress[0]["ipMode"])]
    world.edit(*headers("none"))
    await world.reconcile()
    seen.append((world.cloud.load_balancers[CLUSTER, UID].proxy_protocol, world.ingress[0]["ipMode"]))
    world.edit(*headers(None))
    await world.reconcile()
    world.cloud.proxy_protocol = ProxyProtocol.NONE
    await world.restarted()
    seen.append((world.cloud.load_balancers[CLUSTER, UID].proxy_protocol, world.ingress[0]["ipMode"]))
    assert seen == [({80: "v2"}, "Proxy"), ({}, "VIP"), ({}, "VIP")]
    assert len(world.api.patches) == 1, "both follow in one reconcile"


@pytest.mark.scenario("B74")
@pytest.mark.parametrize(
    ("ports", "with_header", "mode"),
    [
        pytest.param("80,443", {80, 443}, "Proxy", id="some"),
        pytest.param("", set(), "VIP", id="none"),
        pytest.param("80,9999", {80}, "Proxy", id="one that is not there"),
    ],
)
async def test_one_port_with_a_header_is_enough_for_proxy(
    world: World, ports: str, with_header: set[int], mode: str
) -> None:
    world.cloud.ip_mode = IPMode.VIP
    world.create(several(22, 80, 443), *headers("v2", ports))
    await world.reconcile()
    assert set(world.cloud.load_balancers[CLUSTER, UID].proxy_protocol) == with_header
    assert [one["ipMode"] for one in world.ingress] == [mode]
    assert len(messages(world, "IPModeMixed")) == (mode == "Proxy")
    assert len(messages(world, "UnknownPort")) == ("9999" in ports)


@pytest.mark.parametrize(
    ("delivery", "tweaks", "warned"),
    [
        pytest.param(Delivery.REWRITTEN, (annotated("VIP"), *headers("v2")), "bypass the load balancer", id="VIP"),
        pytest.param(Delivery.KEPT, (annotated("Proxy"),), "clients outside the cluster are not served", id="Proxy"),
    ],
)
async def test_an_override_that_breaks_traffic_is_published_and_warned_of_once(
    world: World, delivery: Delivery, tweaks: tuple[builders.Tweak, ...], warned: str
) -> None:
    world.cloud.traffic = dataclasses.replace(world.cloud.traffic, delivery=delivery)
    world.create(*tweaks)
    await world.reconcile()
    world.edit({"spec": {"sessionAffinity": "ClientIP"}})
    await world.reconcile()
    [message] = messages(world, "IPModeConflict")
    assert warned in message


async def test_source_ranges_that_shut_out_clients_inside_are_warned_of(world: World) -> None:
    world.create({"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}})
    await world.reconcile()
    [message] = messages(world, "IPModeConflict")
    assert "the source ranges may shut out" in message


async def test_a_backend_that_does_not_say_that_it_enforces_source_ranges_is_warned_of(world: World) -> None:
    world.cloud.traffic = dataclasses.replace(world.cloud.traffic, enforces_source_ranges=None)
    world.cloud.abilities = dataclasses.replace(world.cloud.abilities, source_ranges=False)
    world.create(builders.annotated(ccm_annotations.SOURCE_RANGES, "198.51.100.0/24"))
    await world.reconcile()
    [message] = messages(world, "IPModeConflict")
    assert "the load balancer may be open to all" in message


async def test_source_ranges_that_are_wrong_keep_the_last_good_ones_and_are_told(world: World) -> None:
    world.create(builders.annotated(ccm_annotations.SOURCE_RANGES, " 198.51.100.0/24 "))
    await world.reconcile()
    world.edit(builders.annotated(ccm_annotations.SOURCE_RANGES, "198.51.100.0/33"))
    with pytest.raises(TerminalError):
        await world.reconcile()
    [load_balancer] = world.cloud.load_balancers.values()
    assert load_balancer.source_ranges == ("198.51.100.0/24",)
    [message] = messages(world, "SyncLoadBalancerFailed")
    assert f'annotation {ccm_annotations.SOURCE_RANGES} is "198.51.100.0/33": expected ranges' in message
    assert world.cloud.verbs() == ["ensure"], "what is wrong reaches no backend"


async def test_what_nobody_carries_out_is_told_once(world: World) -> None:
    internal = builders.annotated("service.beta.kubernetes.io/aws-load-balancer-internal", "true")
    world.create(internal, {"spec": {"sessionAffinity": "ClientIP"}})
    await world.reconcile()
    world.edit(builders.port(81))
    await world.reconcile()
    [field], [annotation] = messages(world, "FieldIgnored"), messages(world, "AnnotationIgnored")
    assert "spec.sessionAffinity" in field
    assert "aws-load-balancer-internal" in annotation


# ---- nodes that ignore it


def old(name: str, version: str) -> builders.Json:
    return builders.node_json(name, {"status": {"nodeInfo": {"kubeProxyVersion": version}}})


async def test_nodes_with_an_old_kube_proxy_are_named_and_those_that_say_nothing_are_not() -> None:
    world = World()
    world.api.create(old("n1", "v1.28.9"))
    world.api.create(old("n2", "v1.34.0"))
    world.api.create(old("n3", ""))
    world.create()
    await world.reconcile()
    [message] = messages(world, "IPModeIgnored")
    assert message.startswith("kube-proxy is older than 1.29 on 1 nodes and ignores ipMode Proxy")
    assert "[n1]" in message


async def test_what_is_known_of_the_pods_goes_before_what_nodes_say() -> None:
    world = World(policy=Policy(proxy_versions=lambda: {"n1": "v1.34.0", "n3": "v1.27.1"}))
    world.api.create(old("n1", "v1.28.9"))
    world.api.create(old("n3", ""))
    world.create()
    await world.reconcile()
    [message] = messages(world, "IPModeIgnored")
    assert "[n3]" in message


async def test_vip_is_what_an_old_kube_proxy_does_anyhow() -> None:
    world = World()
    world.api.create(old("n1", "v1.28.9"))
    world.create(annotated("VIP"))
    await world.reconcile()
    assert "IPModeIgnored" not in world.events.reasons()


async def test_an_old_node_that_joins_is_told_of_when_it_becomes_a_target(world: World) -> None:
    await world.reconciled()
    world.api.create(old("n4", "v1.28.9"))
    await world.reconcile()
    assert world.events.reasons() == ["UpdatedLoadBalancer", "IPModeIgnored"]
