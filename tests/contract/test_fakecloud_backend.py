"""What the backend for fakecloud asks of the cloud, beyond the contract that all backends keep."""

from __future__ import annotations

import pathlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.annotations import ProxyProtocol
from ccm_lb.backends.base import BackendContext, Response
from ccm_lb.backends.fakecloud import FakecloudBackend, FakecloudConfig
from ccm_lb.clock import SystemClock
from ccm_lb.errors import CCMError, ConfigError, PortsError, TerminalError
from ccm_lb.objects import IPMode, Node
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import OpenFence, RecordedEvents
from ccm_lb.transport import CloudTransport
from fakecloud import app
from fakecloud.config import Settings
from fakecloud.models.inventory import Server
from tests.fakecloud.clients import free_pool

SERVICE = builders.service(builders.port(18080))


class RecordingTransport(CloudTransport):
    """The real one, with a list of what went out."""

    def __init__(self) -> None:
        super().__init__(OpenFence("lease-uid:7"), SystemClock())
        self.sent: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []

    async def request(self, method: str, url: str, **options: Any) -> Response:
        self.sent.append((method, options.get("body")))
        self.headers.append(dict(options.get("headers") or {}))
        return await super().request(method, url, **options)

    def writes(self) -> list[tuple[str, Any]]:
        return [(method, body) for method, body in self.sent if method != "GET"]


class World(NamedTuple):
    serving: app.Serving
    transport: RecordingTransport
    events: RecordedEvents
    make: Callable[[FakecloudConfig], FakecloudBackend]
    backend: FakecloudBackend


@pytest.fixture
async def world() -> AsyncIterator[World]:
    settings = Settings(port=0, token="secret", pools=(free_pool(random.Random()),))
    transport, events = RecordingTransport(), RecordedEvents()
    await transport.open()

    def make(config: FakecloudConfig) -> FakecloudBackend:
        return FakecloudBackend(BackendContext("c1", config, transport, SystemClock(), events))

    async with app.running(settings) as serving:
        yield World(serving, transport, events, make, make(FakecloudConfig(url=serving.url, token="secret")))
    await transport.close()


def nodes(*numbers: int) -> tuple[Node, ...]:
    return tuple(builders.node(f"n{i}", builders.addresses(f"127.0.0.{10 + i}")) for i in numbers)


async def stored(world: World) -> Any:
    [load_balancer] = world.serving.cloud.state.load_balancers.values()
    return load_balancer.spec


# ---- only the difference is written


@pytest.mark.scenario("B07")
async def test_what_is_right_already_is_not_written_again(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1, 2))
    world.transport.sent.clear()
    await world.backend.ensure_load_balancer(SERVICE, nodes(1, 2))
    await world.backend.update_load_balancer(SERVICE, nodes(1, 2))
    assert [method for method, _ in world.transport.sent] == ["GET", "GET"]


@pytest.mark.scenario("B34")
async def test_a_new_node_is_one_write_of_the_targets_alone(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1, 2))
    world.transport.sent.clear()
    await world.backend.update_load_balancer(SERVICE, nodes(1, 2, 3))
    [(method, body)] = world.transport.writes()
    assert (method, set(body)) == ("PATCH", {"targets"})


async def test_a_new_port_is_one_write_of_the_listeners_alone(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    world.transport.sent.clear()
    await world.backend.ensure_load_balancer(builders.changed(SERVICE, builders.port(18081)), nodes(1))
    [(method, body)] = world.transport.writes()
    assert (method, set(body)) == ("PATCH", {"listeners"})


async def test_every_write_carries_the_fencing_token(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    await world.backend.ensure_load_balancer_deleted(SERVICE)
    assert {headers["Fencing-Token"] for headers in world.transport.headers} == {"lease-uid:7"}


# ---- what is asked for


async def test_source_ranges_and_the_services_name_are_passed_on(world: World) -> None:
    service = builders.changed(SERVICE, {"spec": {"loadBalancerSourceRanges": ["127.0.0.0/8"]}})
    await world.backend.ensure_load_balancer(service, nodes(1))
    spec = await stored(world)
    assert [str(one) for one in spec.source_ranges] == ["127.0.0.0/8"]
    assert spec.tags == {"kubernetes.io/service": "lb/web"}


async def test_with_traffic_policy_local_the_health_check_asks_kube_proxy(world: World) -> None:
    local = {"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31555}}
    await world.backend.ensure_load_balancer(builders.changed(SERVICE, local), nodes(1))
    check = (await stored(world)).health_check
    assert (check.protocol, check.port, check.path) == ("http", 31555, "/healthz")


@pytest.mark.scenario("B66")
@pytest.mark.scenario("B68")
async def test_of_a_node_with_both_families_the_services_family_is_the_target(world: World) -> None:
    both = builders.node("n1", builders.addresses("fd00::11", "127.0.0.11"))
    only_other = builders.node("n2", builders.addresses("fd00::12"))
    await world.backend.ensure_load_balancer(SERVICE, (both, only_other))
    assert [target.address for target in (await stored(world)).targets] == ["127.0.0.11"]


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
    backend = world.make(FakecloudConfig(url=world.serving.url, token="secret", **configured))
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


# ---- machines that the cloud does not know


def server_node(name: str) -> Node:
    return builders.node(name, {"spec": {"providerID": f"fakecloud://{name}"}})


@pytest.mark.scenario("B08")
async def test_an_unknown_server_is_left_out_and_said_and_stops_no_other(world: World) -> None:
    for name in ("n2", "n3"):
        await world.serving.cloud.add_server(Server(id=name, name=name, addresses=("127.0.0.12",)))
    await world.backend.ensure_load_balancer(SERVICE, [server_node("n1"), server_node("n2")])
    await world.backend.update_load_balancer(SERVICE, [server_node("n1"), server_node("n2"), server_node("n3")])
    assert [target.server for target in (await stored(world)).targets] == ["n2", "n3"]
    assert world.events.lines()[0] == (
        "Warning UnknownServer The cloud does not know the servers n1: they get no traffic"
    )


# ---- the token


async def test_a_wrong_token_is_said_at_the_start(world: World) -> None:
    backend = world.make(FakecloudConfig(url=world.serving.url, token="wrong"))
    with pytest.raises(CCMError, match=r"fakecloud refused GET /v1/address-pools") as caught:
        await backend.open()
    assert "wrong" not in str(caught.value)


@pytest.mark.scenario("B95")
async def test_a_rotated_token_is_read_anew(world: World, tmp_path: pathlib.Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("old\n")
    backend = world.make(FakecloudConfig(url=world.serving.url, token_file=token_file))
    with pytest.raises(CCMError):
        await backend.open()
    token_file.write_text("secret\n")
    await backend.open()
    assert (await backend.ensure_load_balancer(SERVICE, nodes(1))).ingress


async def test_an_unreadable_token_file_is_a_wrong_configuration(world: World, tmp_path: pathlib.Path) -> None:
    backend = world.make(FakecloudConfig(url=world.serving.url, token_file=tmp_path / "absent"))
    with pytest.raises(ConfigError, match=r"tokenFile .*absent: No such file or directory; expected a readable file"):
        await backend.open()


@pytest.mark.parametrize("given", [{}, {"token": "a", "token_file": "b"}], ids=["none", "both"])
def test_exactly_one_way_to_the_token_is_expected(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"exactly one of token and tokenFile"):
        FakecloudConfig.model_validate(given)


def test_the_token_is_never_printed() -> None:
    assert "secret" not in repr(FakecloudConfig(token="secret"))
