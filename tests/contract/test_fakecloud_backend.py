"""What the backend for fakecloud asks of the cloud, beyond the contract that all backends keep."""

from __future__ import annotations

import pathlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.base import BackendContext, Response
from ccm_lb.backends.fakecloud import FakecloudBackend, FakecloudConfig
from ccm_lb.clock import SystemClock
from ccm_lb.errors import CCMError, ConfigError, TerminalError
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


@pytest.mark.scenario("B68")
async def test_of_a_node_with_both_families_the_services_family_is_the_target(world: World) -> None:
    both = builders.node("n1", builders.addresses("fd00::11", "127.0.0.11"))
    only_other = builders.node("n2", builders.addresses("fd00::12"))
    await world.backend.ensure_load_balancer(SERVICE, (both, only_other))
    assert [target.address for target in (await stored(world)).targets] == ["127.0.0.11"]


@pytest.mark.scenario("B72")
async def test_a_port_without_node_port_is_terminal_and_sends_nothing(world: World) -> None:
    service = builders.service({"spec": {"ports": [{"name": "http", "port": 18080}]}})
    with pytest.raises(TerminalError, match=r"ports http have no nodePort: set allocateLoadBalancerNodePorts to true"):
        await world.backend.ensure_load_balancer(service, nodes(1))
    assert world.transport.sent == []


@pytest.mark.scenario("B69")
async def test_a_protocol_that_the_cloud_lacks_is_terminal_and_makes_nothing(world: World) -> None:
    service = builders.service(builders.port(18080, protocol="SCTP"))
    with pytest.raises(TerminalError, match=r"listeners\[0\]\.protocol"):
        await world.backend.ensure_load_balancer(service, nodes(1))
    assert world.serving.cloud.state.load_balancers == {}


# ---- the published mode


@pytest.mark.parametrize(
    ("configured", "annotated", "published"),
    [
        pytest.param(None, None, IPMode.PROXY, id="proxy-unless-told-otherwise"),
        pytest.param("VIP", None, IPMode.VIP, id="configured"),
        pytest.param(None, "VIP", IPMode.VIP, id="annotated"),
        pytest.param("VIP", "Proxy", IPMode.PROXY, id="the-annotation-wins"),
    ],
)
async def test_the_ip_mode_is_the_annotations_then_the_configurations(
    world: World, configured: str | None, annotated: str | None, published: IPMode
) -> None:
    mode = {} if configured is None else {"ip_mode": IPMode(configured)}
    backend = world.make(FakecloudConfig(url=world.serving.url, token="secret", **mode))
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.IP_MODE, annotated))
    status = await backend.ensure_load_balancer(service, nodes(1))
    assert [entry.ip_mode for entry in status.ingress] == [published]
    assert await backend.get_load_balancer(service) == status


async def test_a_bad_annotation_makes_nothing(world: World) -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.IP_MODE, "nonsense"))
    with pytest.raises(TerminalError, match=r"ccm-lb.dev/ip-mode"):
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
