"""What the backend for fakecloud asks of the cloud, beyond the contract that all backends keep."""

from __future__ import annotations

import pathlib

import pytest

from ccm_lb.backends.fakecloud import FakecloudConfig
from ccm_lb.errors import CCMError, ConfigError
from ccm_lb.ipmode import Delivery
from ccm_lb.objects import Node
from ccm_lb.testing import builders
from fakecloud.models.inventory import Server
from tests.contract.fakecloud_world import SERVICE, World, nodes, stored

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


# ---- what the cloud says of itself


@pytest.mark.parametrize(("told", "delivery"), [("proxy", Delivery.REWRITTEN), ("direct", Delivery.KEPT)])
async def test_how_the_cloud_delivers_is_asked_and_need_not_be_configured(
    world: World, told: str, delivery: Delivery
) -> None:
    backend = world.make(FakecloudConfig(url=world.serving.url, token="secret"))
    assert backend.traffic(SERVICE).delivery is Delivery.UNKNOWN, "nobody has said it"
    world.transport.delivery = told
    await backend.open()
    assert backend.traffic(SERVICE).delivery is delivery


@pytest.mark.parametrize(
    ("told", "configured", "said"),
    [
        pytest.param(
            "proxy",
            {"delivery": "direct"},
            r"^delivery: the setting is direct, but fakecloud at http://\S+ delivers proxy \(its --delivery\): remove the setting",
            id="delivery",
        ),
        pytest.param(
            "direct", {"ip_mode": "Proxy"}, r"^ipMode: the setting is Proxy, but .* delivers direct", id="ipMode"
        ),
        pytest.param(
            "direct", {"proxy_protocol": "v2"}, r"^proxyProtocol: the setting is v2, but .*direct", id="header"
        ),
    ],
)
async def test_a_setting_that_the_cloud_contradicts_is_an_error_that_names_both(
    world: World, told: str, configured: dict[str, str], said: str
) -> None:
    backend = world.make(FakecloudConfig.model_validate({"url": world.serving.url, "token": "secret", **configured}))
    world.transport.delivery = told
    with pytest.raises(ConfigError, match=said):
        await backend.open()


@pytest.mark.parametrize(
    ("told", "configured"),
    [("proxy", {"delivery": "proxy", "ip_mode": "VIP"}), ("direct", {"delivery": "direct", "ip_mode": "VIP"})],
)
async def test_a_setting_that_says_the_same_is_none(world: World, told: str, configured: dict[str, str]) -> None:
    backend = world.make(FakecloudConfig.model_validate({"url": world.serving.url, "token": "secret", **configured}))
    world.transport.delivery = told
    await backend.open()


# ---- the token


async def test_a_wrong_token_is_said_at_the_start(world: World) -> None:
    backend = world.make(FakecloudConfig(url=world.serving.url, token="wrong"))
    with pytest.raises(CCMError, match=r"fakecloud refused GET /v1/cloud") as caught:
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
