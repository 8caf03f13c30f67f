"""Which addresses and families are published, and what is said of ports that cannot be served."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_lb.controller.addresses import Kind
from ccm_lb.controller.publish import Policy
from ccm_lb.errors import PortsError, TerminalError
from ccm_lb.objects import PortStatus
from ccm_lb.testing import builders
from tests.component.world import CLUSTER, UID, World

CONDITION = "LoadBalancerPortsError"


def giving(world: World, ip: str) -> World:
    """The cloud gives this very address."""
    world.cloud._pools["IPv6" if ":" in ip else "IPv4"] = iter([ip])  # type: ignore[assignment]
    return world


# ---- addresses that are something else, too

SPECIAL = [
    pytest.param("192.0.2.12", Kind.NODE, "is also the address of node n2", id="a node's"),
    pytest.param("198.51.100.1", Kind.API_SERVER, "is also the address of the API server", id="the API server's"),
    pytest.param("127.0.0.1", Kind.LOOPBACK, "is a loopback address", id="loopback"),
    pytest.param("169.254.1.1", Kind.LINK_LOCAL, "is a link-local address", id="link-local"),
    pytest.param("0.0.0.0", Kind.UNSPECIFIED, "is the unspecified address", id="unspecified"),
    pytest.param("224.0.0.5", Kind.MULTICAST, "is a multicast address", id="multicast"),
]
API_SERVER = ("198.51.100.1",)


@pytest.mark.scenario("B16")
@pytest.mark.parametrize(("ip", "kind", "why"), SPECIAL)
async def test_such_an_address_is_not_published_and_the_load_balancer_stays(ip: str, kind: Kind, why: str) -> None:
    world = giving(World.reconciling(Policy(api_server=API_SERVER)), ip)
    world.create()
    await world.failed(TerminalError)
    assert world.ingress == []
    assert world.events.lines()[-1] == (
        "Warning SyncLoadBalancerFailed Error syncing load balancer: no address of the load balancer can be published: "
        f"{ip} {why}: not published unless --allow-addresses names {kind}"
    )
    assert world.cloud.changes() == ["CREATE"]


@pytest.mark.scenario("B16")
@pytest.mark.parametrize(("ip", "kind", "why"), SPECIAL)
@pytest.mark.parametrize("annotated", ["VIP", "Proxy"])
async def test_allowed_it_is_published_and_what_belongs_to_a_machine_as_proxy_alone(
    ip: str, kind: Kind, why: str, annotated: str
) -> None:
    world = giving(World.reconciling(Policy(frozenset({kind}), api_server=API_SERVER)), ip)
    world.create(builders.annotated("ccm-lb.dev/ip-mode", annotated))
    await world.reconcile()
    taken = kind in (Kind.NODE, Kind.API_SERVER)
    assert world.ingress == [{"ip": ip, "ipMode": "Proxy" if taken else annotated}]


async def test_the_unspecified_address_of_ipv6_is_one_as_well(world: World) -> None:
    giving(world, "::")
    world.create(builders.families("IPv6"))
    await world.failed(TerminalError)
    assert world.ingress == []


@pytest.mark.scenario("B16")
async def test_an_address_that_a_node_leaves_is_published_at_the_next_attempt(world: World) -> None:
    giving(world, "192.0.2.12")
    world.create()
    await world.failed(TerminalError)
    world.api.delete(builders.node_json("n2"))
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == ["192.0.2.12"]
    assert world.cloud.changes()[0] == "CREATE"
    assert "CREATE" not in world.cloud.changes()[1:]


@pytest.mark.scenario("B16")
async def test_a_node_without_traffic_has_its_address_too(world: World) -> None:
    world.api.create(
        builders.node_json("n4", builders.labelled("node.kubernetes.io/exclude-from-external-load-balancers", ""))
    )
    giving(world, "192.0.2.14")
    world.create()
    await world.failed(TerminalError)
    assert world.ingress == []


# ---- families


async def test_addresses_come_in_the_order_of_the_families(world: World) -> None:
    world.create(builders.families("IPv6", "IPv4"))
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == ["2001:db8:f::1", "203.0.113.1"]
    assert {one["ipMode"] for one in world.ingress} == {"Proxy"}


async def test_a_family_that_is_added_or_removed_leaves_the_other_address_alone(world: World) -> None:
    await world.reconciled()
    world.edit(builders.families("IPv4", "IPv6"))
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == ["203.0.113.1", "2001:db8:f::1"]
    world.edit(builders.families("IPv6"))
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == ["2001:db8:f::1"]
    assert world.cloud.changes() == ["UPDATE", "UPDATE"]


@pytest.mark.scenario("B65")
@pytest.mark.parametrize("needs_ipv4", [False, True])
async def test_an_ipv6_service_publishes_ipv6_alone(world: World, needs_ipv4: bool) -> None:  # noqa: FBT001
    world.cloud.needs_ipv4 = needs_ipv4
    for number in (1, 2, 3):
        ips = builders.addresses(f"192.0.2.{10 + number}", f"2001:db8::{10 + number}")
        world.api.edit(builders.node_json(f"n{number}"), ips)
    world.create(builders.families("IPv6"))
    await world.reconcile()
    assert world.ingress == [{"ip": "2001:db8:f::1", "ipMode": "Proxy"}]
    targets = world.cloud.load_balancers[CLUSTER, UID].fronts
    assert targets == {"IPv6": ("2001:db8::11", "2001:db8::12", "2001:db8::13")}
    told = [one.message for one in world.events.all if one.reason == "AddressNotPublished"]
    assert told == (["203.0.113.1 is not published: the Service's spec.ipFamilies is IPv6"] if needs_ipv4 else [])


@pytest.mark.scenario("B66")
async def test_an_address_of_a_family_that_the_service_does_not_have_is_not_published(world: World) -> None:
    world.create(builders.families("IPv6", "IPv4"))
    await world.reconcile()
    world.cloud.needs_ipv4 = True
    world.edit({"spec": {"ipFamilies": ["IPv6"]}})
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == ["2001:db8:f::1"]


@pytest.mark.scenario("B68")
async def test_each_family_sends_to_nodes_that_have_it(world: World) -> None:
    for name, ips in {
        "n1": ["2001:db8::11", "192.0.2.11"],
        "n2": ["192.0.2.12", "2001:db8::12"],
        "n3": ["192.0.2.13"],
    }.items():
        world.api.edit(builders.node_json(name), builders.addresses(*ips))
    world.create(builders.families("IPv4", "IPv6"))
    await world.reconcile()
    assert world.cloud.load_balancers[CLUSTER, UID].fronts == {
        "IPv4": ("192.0.2.11", "192.0.2.12", "192.0.2.13"),
        "IPv6": ("2001:db8::11", "2001:db8::12"),
    }


# ---- ports


def mixed(*more: Any) -> builders.Tweak:
    return {"spec": {"ports": [builders.port_json(80), builders.port_json(443, 30443, name="https"), *more]}}


QUIC = builders.port_json(443, 30443, "UDP", "quic")


@pytest.mark.scenario("B69")
@pytest.mark.parametrize("protocol", ["UDP", "SCTP"])
async def test_a_new_service_with_a_protocol_that_the_cloud_lacks_makes_nothing_and_says_so(
    world: World, protocol: str
) -> None:
    world.cloud.protocols = frozenset({"TCP"})
    world.create(mixed({**QUIC, "protocol": protocol}))
    await world.failed(PortsError)
    assert (world.cloud.load_balancers, world.ingress) == ({}, [])
    assert world.condition is not None
    assert (world.condition["status"], world.condition["reason"]) == ("True", "ProtocolNotSupported")
    assert f"443/{protocol}" in world.condition["message"]
    assert [one.reason for one in world.events.all if one.type == "Warning"] == ["SyncLoadBalancerFailed"]


@pytest.mark.scenario("B69")
async def test_a_served_service_keeps_its_ports_and_the_condition_ends_with_the_bad_one(world: World) -> None:
    world.cloud.protocols = frozenset({"TCP"})
    world.create(mixed())
    await world.reconcile()
    world.forget_history()
    world.edit(mixed(QUIC))
    await world.reconcile()
    assert world.cloud.changes() == [], "what served goes on"
    assert world.condition is not None
    assert world.condition["status"] == "True"
    assert world.ingress[0]["ports"] == [
        {"port": 80, "protocol": "TCP"},
        {"port": 443, "protocol": "TCP"},
        {"port": 443, "protocol": "UDP", "error": "ProtocolNotSupported"},
    ]
    assert [one.reason for one in world.events.all if one.type == "Warning"] == [CONDITION]
    world.edit(mixed())
    await world.reconcile()
    assert "ports" not in world.ingress[0]
    assert world.condition["status"] == "False"
    await world.restarted()
    assert world.api.patches == []


@pytest.mark.scenario("B69")
async def test_a_restart_with_a_bad_port_writes_nothing(world: World) -> None:
    world.cloud.protocols = frozenset({"TCP"})
    world.create(mixed())
    await world.reconcile()
    world.edit(mixed(QUIC))
    await world.reconcile()
    await world.restarted()
    assert (world.api.patches, world.events.all) == ([], [])


@pytest.mark.scenario("B72")
async def test_a_port_without_node_port_is_served_once_it_has_one(world: World) -> None:
    bare: builders.Tweak = {
        "spec": {"allocateLoadBalancerNodePorts": False, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}
    }
    world.create(bare)
    await world.failed(PortsError)
    assert (world.cloud.load_balancers, world.ingress) == ({}, [])
    assert world.condition is not None
    assert world.condition["reason"] == "NoNodePort"
    world.edit(builders.port(80))
    await world.reconcile()
    assert world.ingress
    assert world.condition["status"] == "False"
    assert world.cloud.load_balancers[CLUSTER, UID].listeners == (("TCP", 80, 30080),)


@pytest.mark.scenario("B72")
async def test_the_ports_that_have_a_node_port_are_served(world: World) -> None:
    world.create(mixed({"name": "admin", "port": 8080, "protocol": "TCP"}))
    await world.reconcile()
    assert [port.get("error") for port in world.ingress[0]["ports"]] == [None, None, "NoNodePort"]
    assert world.condition is not None
    assert [port for _, port, _ in world.cloud.load_balancers[CLUSTER, UID].listeners] == [80, 443]


@pytest.mark.scenario("B71")
async def test_tcp_and_udp_on_one_port_go_each_to_their_node_port(world: World) -> None:
    tcp, udp = builders.port_json(53, 30053, "TCP", "tcp"), builders.port_json(53, 30054, "UDP", "udp")
    world.create({"spec": {"ports": [tcp, udp]}})
    await world.reconcile()
    assert world.cloud.load_balancers[CLUSTER, UID].listeners == (("TCP", 53, 30053), ("UDP", 53, 30054))
    world.forget_history()
    world.edit({"spec": {"ports": [udp, tcp]}})
    await world.reconcile()
    assert world.cloud.changes() == []
    world.edit({"spec": {"ports": [udp]}})
    await world.reconcile()
    assert world.cloud.load_balancers[CLUSTER, UID].listeners == (("UDP", 53, 30054),)


async def test_the_condition_goes_with_the_load_balancer(world: World) -> None:
    world.create(mixed({"name": "admin", "port": 8080, "protocol": "TCP"}))
    world.edit({"status": {"conditions": [{"type": "Other", "status": "True"}]}})
    await world.reconcile()
    assert world.condition is not None
    world.edit(builders.of_type("ClusterIP"))
    await world.reconcile()
    assert world.service["status"]["conditions"] == [{"type": "Other", "status": "True"}]


async def test_a_condition_of_somebody_else_is_left_alone(world: World) -> None:
    world.create({"status": {"conditions": [{"type": "Other", "status": "True"}]}})
    await world.reconcile()
    assert world.service["status"]["conditions"] == [{"type": "Other", "status": "True"}]
    assert all("conditions" not in patch.get("status", {}) for patch in world.api.patches)


async def test_a_condition_that_stands_is_not_written_again_by_each_attempt(world: World) -> None:
    world.create()
    for _ in range(2):
        refused = PortsError("no", [PortStatus(port=80, protocol="TCP", error="NoNodePort")])
        world.cloud.script.then("ensure", refused)
        await world.failed(PortsError)
    assert len([patch for patch in world.api.patches if "status" in patch]) == 1
