"""Nodes are told before a load balancer starts to do what only it does, and told otherwise after it stopped."""

from __future__ import annotations

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.annotations import ProxyProtocol
from ccm_lb.errors import ApiError, CCMError, PortsError, RetryAfterError
from ccm_lb.ipmode import Delivery, Traffic
from ccm_lb.objects import IPMode
from ccm_lb.testing import builders
from ccm_lb.testing.memory import Call
from ccm_lb.testing.script import Lost
from tests.component.world import CLUSTER, ENSURED, ENSURING, UID, World

IP = "203.0.113.1"
CHOSEN_PROXY = (
    f"Normal IPModeChosen ipMode Proxy for {IP}: only the load balancer adds what 80/TCP (PROXY protocol v2) expect"
)


def header(value: str | None) -> builders.Tweak:
    return builders.annotated(ccm_annotations.PROXY_PROTOCOL, value)


@pytest.fixture
async def world() -> World:
    """A Service that is served with ipMode VIP, the provider's default."""
    world = World.reconciling()
    world.cloud.ip_mode = IPMode.VIP
    await world.reconciled()
    assert modes(world) == ["VIP"]
    return world


def modes(world: World) -> list[str]:
    return [one["ipMode"] for one in world.ingress if "ipMode" in one]


def with_header(world: World) -> bool:
    return bool(world.cloud.load_balancers[CLUSTER, UID].proxy_protocol)


class ModesAtEnsure:
    """What was published at the moment of each call of ensure."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.all: list[list[str]] = []
        world.cloud.on_call = self._note

    def _note(self, call: Call) -> None:
        if call.verb == "ensure":
            self.all.append(modes(self._world))


async def test_proxy_is_published_before_the_first_port_has_a_header(world: World) -> None:
    seen = ModesAtEnsure(world)
    world.edit(header("v2"))
    await world.reconcile()
    assert (seen.all, modes(world), with_header(world)) == ([["Proxy"]], ["Proxy"], True)
    assert len(world.api.patches) == 1, "the second look finds it written"


async def test_vip_is_published_after_the_last_port_lost_its_header(world: World) -> None:
    world.edit(header("v2"))
    await world.reconcile()
    seen = ModesAtEnsure(world)
    world.edit(header(None))
    await world.reconcile()
    assert (seen.all, modes(world), with_header(world)) == ([["Proxy"]], ["VIP"], False)


async def test_the_choice_is_told_when_it_is_published_and_once(world: World) -> None:
    world.edit(header("v2"))
    world.cloud.script.then("ensure", CCMError("quota exceeded"))
    await world.failed()
    assert world.events.lines()[:2] == [ENSURING, CHOSEN_PROXY]
    await world.reconcile()
    assert world.events.lines()[3:] == [ENSURING, ENSURED]


@pytest.mark.parametrize(
    "error",
    [CCMError("quota exceeded"), RetryAfterError("still at it", 2.0), PortsError("no", []), Lost(CCMError("cut"))],
    ids=["failed", "needs time", "refused", "lost answer"],
)
async def test_while_the_cloud_is_not_done_nodes_keep_to_proxy(world: World, error: Exception | Lost) -> None:
    world.edit(header("v2"))
    world.cloud.script.then("ensure", error)
    await world.failed()
    assert modes(world) == ["Proxy"]
    world.edit(header(None))
    world.cloud.script.then("ensure", error)
    await world.failed()
    assert modes(world) == ["Proxy"], "whether the header is gone is not known"
    await world.reconcile()
    assert (modes(world), with_header(world)) == (["VIP"], False)


async def test_a_mode_that_cannot_be_published_stops_the_header(world: World) -> None:
    world.edit(header("v2"))
    world.api.script.then("patch_service_status", ApiError("etcd is slow", status=500))
    assert await world.failed() == "failed to update load balancer status: etcd is slow"
    assert not with_header(world)
    assert "ensure" not in world.cloud.verbs()
    await world.reconcile()
    assert (modes(world), with_header(world)) == (["Proxy"], True)


async def test_killed_in_between_the_next_process_goes_on(world: World) -> None:
    world.edit(header("v2"))
    world.cloud.script.then("ensure", CCMError("killed"))
    await world.failed()
    await world.restarted()
    assert (modes(world), with_header(world)) == (["Proxy"], True)
    assert world.api.patches == []


async def test_a_providers_new_default_is_published_before_the_cloud_follows_it(world: World) -> None:
    world.cloud.proxy_protocol = ProxyProtocol.V2
    seen = ModesAtEnsure(world)
    await world.restarted()
    assert (seen.all, with_header(world)) == ([["Proxy"]], True)
    assert CHOSEN_PROXY in world.events.lines()


async def test_an_override_to_proxy_that_comes_with_the_header_comes_before_it(world: World) -> None:
    seen = ModesAtEnsure(world)
    world.edit(header("v2"), builders.annotated(ccm_annotations.IP_MODE, "Proxy"))
    await world.reconcile()
    assert seen.all == [["Proxy"]]


async def test_an_override_to_vip_stays(world: World) -> None:
    world.edit(header("v2"), builders.annotated(ccm_annotations.IP_MODE, "VIP"))
    await world.reconcile()
    assert (modes(world), with_header(world), world.api.patches) == (["VIP"], True, [])


async def test_a_misspelt_override_does_not_leave_vip_on_ports_with_a_header(world: World) -> None:
    seen = ModesAtEnsure(world)
    world.edit(header("v2"), builders.annotated(ccm_annotations.IP_MODE, "Proxi"))
    await world.reconcile()
    assert (seen.all, modes(world)) == ([["Proxy"]], ["Proxy"])
    assert "IPModeRefused" in world.events.reasons()


async def test_a_mode_that_no_port_depends_on_follows_the_cloud(world: World) -> None:
    seen = ModesAtEnsure(world)
    world.edit(builders.annotated(ccm_annotations.IP_MODE, "Proxy"))
    await world.reconcile()
    assert (seen.all, modes(world)) == ([["VIP"]], ["Proxy"])


async def test_a_new_service_has_one_write_of_its_status() -> None:
    world = World.reconciling()
    world.cloud.ip_mode = IPMode.VIP
    world.create(header("v2"))
    await world.reconcile()
    written = [patch["status"] for patch in world.api.patches if "status" in patch]
    assert written == [{"loadBalancer": {"ingress": [{"ip": IP, "ipMode": "Proxy"}]}}]


async def test_a_server_without_the_field_is_asked_once_and_the_header_is_not_held_up(world: World) -> None:
    world.api.has_ip_mode = False
    world.edit(header("v2"))
    await world.reconcile()
    assert with_header(world)
    assert len(world.api.patches) == 1
    assert world.events.reasons().count("IPModeNotStored") == 1


async def test_on_such_a_server_the_host_name_comes_before_the_header(world: World) -> None:
    world.api.has_ip_mode = False
    hosts: list[object] = []
    world.cloud.on_call = lambda _: hosts.append(world.ingress)
    world.edit(header("v2"), builders.annotated(ccm_annotations.HOSTNAME, "web.example.com"))
    await world.reconcile()
    assert hosts == [[{"hostname": "web.example.com"}]]


async def test_a_backend_that_keeps_the_destination_is_not_changed_ahead(world: World) -> None:
    world.cloud.traffic = Traffic(Delivery.KEPT)
    world.edit(header("v2"))
    await world.reconcile()
    assert (modes(world), world.api.patches) == (["VIP"], [])


async def test_a_service_deleted_meanwhile_gets_no_header(world: World) -> None:
    world.edit(header("v2"))
    world.hold_watch()
    world.vanish()
    await world.reconcile()
    assert "ensure" not in world.cloud.verbs()
