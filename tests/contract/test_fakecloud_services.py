"""Ports, health checks, PROXY protocol and ipMode at fakecloud: what a Service asks for, and what is made of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.annotations import ProxyProtocol
from ccm_lb.backends.fakecloud import FakecloudBackend, FakecloudConfig
from ccm_lb.errors import PortsError, TerminalError
from ccm_lb.objects import IPMode
from ccm_lb.testing import builders
from tests.contract.fakecloud_world import SERVICE, World, nodes, stored
from tests.controlplane.server import free_ports

# ---- ports that cannot be served


@pytest.mark.scenario("B72")
async def test_a_port_without_node_port_is_refused_and_sends_nothing(world: World) -> None:
    service = builders.service({"spec": {"ports": [{"name": "http", "port": 18080}]}})
    with pytest.raises(
        PortsError, match=r"18080/TCP \(NoNodePort\).*set allocateLoadBalancerNodePorts to true"
    ) as caught:
        await world.backend.ensure_load_balancer(service, nodes(1))
    assert [(port.port, port.error) for port in caught.value.ports] == [(18080, "NoNodePort")]
    assert world.transport.sent == []


@pytest.mark.scenario("B72")
async def test_of_several_ports_those_with_a_node_port_are_served(world: World) -> None:
    ports = [builders.port_json(18080), {"name": "admin", "port": 18081, "protocol": "TCP"}]
    status = await world.backend.ensure_load_balancer(builders.service({"spec": {"ports": ports}}), nodes(1))
    [entry] = status.ingress
    assert [(port.port, port.error) for port in entry.ports] == [(18081, "NoNodePort")]
    assert [(one.port, one.target_port) for one in (await stored(world)).listeners] == [(18080, 30080)]


async def keeping(world: World) -> FakecloudBackend:
    """A backend whose cloud says that it keeps the destination of packets."""
    world.transport.delivery = "direct"
    backend = world.make(FakecloudConfig(url=world.serving.url, token="secret"))
    await backend.open()
    return backend


@pytest.mark.parametrize("asked", [{}, {ccm_annotations.HEALTH_CHECK_PROTOCOL: "tcp"}], ids=["", "tcp"])
async def test_where_packets_keep_their_destination_no_node_port_is_needed_and_kube_proxy_is_asked_who_is_well(
    world: World, asked: dict[str, str]
) -> None:
    backend = await keeping(world)
    ports = [{"name": "http", "port": 18080, "protocol": "TCP"}, builders.port_json(18081, 30081, "TCP", "admin")]
    metadata = {"annotations": asked}
    status = await backend.ensure_load_balancer(
        builders.service({"metadata": metadata, "spec": {"ports": ports}}), nodes(1)
    )
    assert [entry.ports for entry in status.ingress] == [()]
    spec = await stored(world)
    assert [(one.port, one.target_port) for one in spec.listeners] == [(18080, 18080), (18081, 30081)]
    assert (spec.health_check.protocol, spec.health_check.port, spec.health_check.path) == ("http", 10256, "/healthz")


async def test_without_node_ports_policy_local_is_asked_at_its_own_port(world: World) -> None:
    backend = await keeping(world)
    spec = {
        "ports": [{"name": "http", "port": 18080, "protocol": "TCP"}],
        "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 31000,
    }
    await backend.ensure_load_balancer(builders.service({"spec": spec}), nodes(1))
    check = (await stored(world)).health_check
    assert (check.protocol, check.port, check.path) == ("http", 31000, "/healthz")


@pytest.mark.scenario("B69")
async def test_a_protocol_that_the_cloud_lacks_makes_nothing(world: World) -> None:
    ports = [builders.port_json(18080), builders.port_json(18081, 30081, "SCTP", "sctp")]
    with pytest.raises(PortsError) as caught:
        await world.backend.ensure_load_balancer(builders.service({"spec": {"ports": ports}}), nodes(1))
    assert [(port.port, port.protocol, port.error) for port in caught.value.ports] == [
        (18081, "SCTP", "ProtocolNotSupported")
    ]
    assert world.serving.cloud.state.load_balancers == {}


@pytest.mark.scenario("B69")
async def test_a_protocol_that_the_cloud_lacks_leaves_what_served_and_serves_the_other_changes(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    ports = [builders.port_json(18082), builders.port_json(18081, 30081, "SCTP", "sctp")]
    changed = builders.changed(SERVICE, {"spec": {"ports": ports}})
    status = await world.backend.ensure_load_balancer(changed, nodes(1, 2))
    assert [(port.port, port.error) for port in status.ingress[0].ports] == [(18081, "ProtocolNotSupported")]
    spec = await stored(world)
    assert [one.port for one in spec.listeners] == [18082]
    assert len(spec.targets) == 2


@pytest.mark.scenario("B69")
async def test_a_service_whose_only_port_becomes_unservable_keeps_what_it_had(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    changed = builders.changed(SERVICE, builders.port(18080, protocol="SCTP"))
    status = await world.backend.ensure_load_balancer(changed, nodes(1))
    assert [port.error for port in status.ingress[0].ports] == ["ProtocolNotSupported"]
    assert [one.port for one in (await stored(world)).listeners] == [18080]


@pytest.mark.scenario("B71")
async def test_tcp_and_udp_on_one_port_have_listeners_of_their_own_and_their_order_means_nothing(world: World) -> None:
    tcp, udp = builders.port_json(18053, 30053, "TCP", "tcp"), builders.port_json(18053, 30054, "UDP", "udp")
    await world.backend.ensure_load_balancer(builders.service({"spec": {"ports": [tcp, udp]}}), nodes(1))
    listeners = (await stored(world)).listeners
    assert {(one.protocol, one.port, one.target_port) for one in listeners} == {
        ("TCP", 18053, 30053),
        ("UDP", 18053, 30054),
    }
    world.transport.sent.clear()
    await world.backend.ensure_load_balancer(builders.service({"spec": {"ports": [udp, tcp]}}), nodes(1))
    assert world.transport.writes() == []
    await world.backend.ensure_load_balancer(builders.service({"spec": {"ports": [udp]}}), nodes(1))
    assert [(one.protocol, one.target_port) for one in (await stored(world)).listeners] == [("UDP", 30054)]


# ---- health checks


@pytest.mark.scenario("B14")
async def test_a_new_node_port_moves_listener_and_check_in_one_write(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    world.transport.sent.clear()
    await world.backend.ensure_load_balancer(builders.changed(SERVICE, builders.port(18080, 30090)), nodes(1))
    assert len(world.transport.writes()) == 1
    spec = await stored(world)
    assert [one.target_port for one in spec.listeners] == [30090]
    assert spec.health_check.port is None, "without a port of its own the check follows each listener's"


@pytest.mark.scenario("B21")
@pytest.mark.scenario("B22")
@pytest.mark.parametrize("app_protocol", [None, "http", "kubernetes.io/h2c"])
async def test_the_check_is_tcp_on_the_node_port_whatever_the_app_speaks(
    world: World, app_protocol: str | None
) -> None:
    port = {**builders.port_json(18080), "appProtocol": app_protocol}
    await world.backend.ensure_load_balancer(builders.service({"spec": {"ports": [port]}}), nodes(1))
    check = (await stored(world)).health_check
    assert (check.protocol, check.port, check.path) == ("tcp", None, None)


@pytest.mark.scenario("B22")
@pytest.mark.parametrize(
    ("policy", "asked", "check"),
    [
        pytest.param("Local", "tcp", ("tcp", None, None), id="tcp although kube-proxy could be asked"),
        pytest.param("Cluster", "tcp", ("tcp", None, None), id="tcp"),
        pytest.param("Cluster", "http", ("http", None, "/"), id="http"),
        pytest.param("Local", "http", ("http", 31555, "/healthz"), id="http at kube-proxy"),
    ],
)
async def test_the_annotation_chooses_the_check(
    world: World, policy: str, asked: str, check: tuple[object, ...]
) -> None:
    spec = {"spec": {"externalTrafficPolicy": policy, "healthCheckNodePort": 31555 if policy == "Local" else None}}
    before = builders.changed(SERVICE, spec)
    await world.backend.ensure_load_balancer(before, nodes(1))
    after = builders.changed(before, builders.annotated(ccm_annotations.HEALTH_CHECK_PROTOCOL, asked))
    await world.backend.ensure_load_balancer(after, nodes(1))
    found = (await stored(world)).health_check
    assert (found.protocol, found.port, found.path) == check


@pytest.mark.parametrize(
    ("policy", "annotated", "port", "asked"),
    [
        pytest.param("Cluster", None, 10256, True, id="Cluster"),
        pytest.param("Local", None, 31555, True, id="Local asks its own port"),
        pytest.param("Cluster", "tcp", None, False, id="the annotation counts more"),
        pytest.param("Cluster", "http", None, False, id="so it does for http"),
    ],
)
async def test_kube_proxy_is_asked_where_the_settings_say_so(
    world: World, policy: str, annotated: str | None, port: int | None, *, asked: bool
) -> None:
    backend = world.make(FakecloudConfig(url=world.serving.url, token="secret", ask_kube_proxy=True))
    await backend.open()
    spec = {"spec": {"externalTrafficPolicy": policy, "healthCheckNodePort": 31555 if policy == "Local" else None}}
    service = builders.changed(SERVICE, spec, builders.annotated(ccm_annotations.HEALTH_CHECK_PROTOCOL, annotated))
    await backend.ensure_load_balancer(service, nodes(1))
    assert (await stored(world)).health_check.port == port
    assert backend.traffic(service).probes_ask_kube_proxy is asked


def test_without_that_setting_nobody_but_local_asks_kube_proxy(world: World) -> None:
    assert not world.backend.traffic(SERVICE).probes_ask_kube_proxy
    local = builders.changed(SERVICE, {"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31555}})
    assert world.backend.traffic(local).probes_ask_kube_proxy


# ---- what decides about ipMode


@pytest.mark.parametrize(
    ("configured", "published"),
    [
        pytest.param({}, IPMode.PROXY, id="proxy-unless-told-otherwise"),
        pytest.param({"ip_mode": IPMode.VIP}, IPMode.VIP, id="configured"),
        pytest.param({"delivery": "direct"}, IPMode.VIP, id="the destination is kept"),
        pytest.param({"ip_mode": IPMode.VIP, "proxy_protocol": "v2"}, IPMode.PROXY, id="proxy-protocol"),
    ],
)
async def test_the_ip_mode_follows_the_settings(world: World, configured: dict[str, Any], published: IPMode) -> None:
    world.transport.delivery = configured.get("delivery")
    backend = world.make(FakecloudConfig(url=world.serving.url, token="secret", **configured))
    await backend.open()
    status = await backend.ensure_load_balancer(SERVICE, nodes(1))
    assert [entry.ip_mode for entry in status.ingress] == [published]
    assert await backend.get_load_balancer(SERVICE) == status


@pytest.mark.scenario("B74")
@pytest.mark.parametrize(
    ("ports", "with_header"),
    [
        pytest.param("18080,18443", {18080, 18443}, id="some"),
        pytest.param("", set(), id="none"),
        pytest.param(None, {18022, 18080, 18443}, id="all"),
        pytest.param("18080, 9999", {18080}, id="one of them unknown"),
    ],
)
async def test_proxy_protocol_is_on_the_ports_that_are_named(
    world: World, ports: str | None, with_header: set[int]
) -> None:
    listed = [builders.port_json(port, port + 12000, name=f"p{port}") for port in (18022, 18080, 18443)]
    service = builders.service(
        {"spec": {"ports": [*listed, builders.port_json(18022, 30099, "UDP", "udp")]}},
        builders.annotated(ccm_annotations.PROXY_PROTOCOL, "v2"),
        builders.annotated(ccm_annotations.PROXY_PROTOCOL_PORTS, ports),
    )
    await world.backend.ensure_load_balancer(service, nodes(1))
    listeners = (await stored(world)).listeners
    assert {one.port for one in listeners if one.proxy_protocol == "v2"} == with_header
    assert {port.port for port in world.backend.traffic(service).ports if port.proxy_protocol} == with_header


@pytest.mark.scenario("B23")
async def test_proxy_protocol_of_the_settings_is_in_the_load_balancer_and_in_the_mode(world: World) -> None:
    url, off = world.serving.url, builders.annotated(ccm_annotations.PROXY_PROTOCOL, "none")
    default = world.make(FakecloudConfig(url=url, token="secret", ip_mode=IPMode.VIP, proxy_protocol=ProxyProtocol.V2))
    without = world.make(FakecloudConfig(url=url, token="secret", ip_mode=IPMode.VIP))
    seen = []
    for backend, service in ((default, SERVICE), (default, builders.changed(SERVICE, off)), (without, SERVICE)):
        status = await backend.ensure_load_balancer(service, nodes(1))
        seen.append(((await stored(world)).listeners[0].proxy_protocol, status.ingress[0].ip_mode))
    assert seen == [("v2", "Proxy"), ("none", "VIP"), ("none", "VIP")]


async def test_a_bad_annotation_makes_nothing(world: World) -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.PROXY_PROTOCOL, "v3"))
    with pytest.raises(TerminalError, match=r"ccm-lb.dev/proxy-protocol"):
        await world.backend.ensure_load_balancer(service, nodes(1))
    assert world.transport.writes() == []


# ---- session affinity


AFFINITY = {"spec": {"sessionAffinity": "ClientIP"}}
TEN_MINUTES = {"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}}}


@pytest.mark.parametrize(
    ("config", "seconds"), [(TEN_MINUTES, 600), ({}, 10_800)], ids=["600 s", "Kubernetes' default"]
)
async def test_a_client_stays_on_its_node_for_as_long_as_the_service_says(
    world: World, config: dict[str, Any], seconds: float
) -> None:
    await world.backend.ensure_load_balancer(builders.service(AFFINITY, config), nodes(1))
    affinity = (await stored(world)).session_affinity
    assert (affinity.type, affinity.timeout_seconds) == ("ClientIP", seconds)


async def test_affinity_comes_and_goes_with_the_service_and_as_it_is_nothing_is_written(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    assert (await stored(world)).session_affinity is None
    sticky = builders.changed(SERVICE, AFFINITY, TEN_MINUTES)
    for service in (sticky, sticky, SERVICE, SERVICE):
        await world.backend.ensure_load_balancer(service, nodes(1))
    assert world.transport.writes()[1:] == [
        ("PATCH", {"sessionAffinity": {"type": "ClientIP", "timeoutSeconds": 600}}),
        ("PATCH", {"sessionAffinity": None}),
    ]
    assert (await stored(world)).session_affinity is None


# ---- probes and the PROXY header


class Machine:
    """Answers probes on two ports and remembers how each connection began."""

    def __init__(self) -> None:
        self.check_port, self.node_port = free_ports(2)
        self.checks: list[bytes] = []
        self.connections: list[bytes] = []

    async def check(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.checks.append(await reader.readline())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async def app(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """An app that resets what comes without a header."""
        self.connections.append(first := await reader.read(16))
        if not first.startswith(b"\r\n\r\n\x00\r\nQUIT\n"):
            writer.transport.abort()
        writer.close()


@pytest.mark.scenario("B75")
@pytest.mark.parametrize("policy", ["Local", "Cluster"])
async def test_probes_carry_no_header_and_break_no_protocol(world: World, policy: str) -> None:
    machine = Machine()
    servers = [
        await asyncio.start_server(machine.check, "127.0.0.11", machine.check_port),
        await asyncio.start_server(machine.app, "127.0.0.11", machine.node_port),
    ]
    local = {"healthCheckNodePort": machine.check_port} if policy == "Local" else {}
    service = builders.service(
        builders.port(18080, machine.node_port),
        {"spec": {"externalTrafficPolicy": policy, **local}},
        builders.annotated(ccm_annotations.PROXY_PROTOCOL, "v2"),
    )
    try:
        await world.backend.ensure_load_balancer(service, nodes(1))
        async with asyncio.timeout(20):
            while not await healthy(world):
                await asyncio.sleep(0.05)
    finally:
        for server in servers:
            server.close()
    assert set(machine.checks) == ({b"GET /healthz HTTP/1.1\r\n"} if policy == "Local" else set())
    assert set(machine.connections) <= {b""}, "a probe connects, and says nothing"


async def healthy(world: World) -> bool:
    """Whether the cloud takes every target for healthy."""
    response = await world.transport.request(
        "GET", f"{world.serving.url}/v1/load-balancers", headers={"Authorization": "Bearer secret"}
    )
    [load_balancer] = response.json()["items"]
    return all(target["healthy"] for target in load_balancer["status"]["targets"])
