"""A load balancer outlives its Service, and is taken over by another; one has the address that was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.errors import TerminalError
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak
from ccm_lb.testing.memory import MemoryBackend
from tests.component.world import CLUSTER, KEY, OTHER_UID, UID, World

KEEP = builders.annotated(ccm_annotations.KEEP, "true")
ADOPT = builders.annotated(ccm_annotations.ADOPT, f"{CLUSTER}/{UID}")
ANOTHER = (builders.named("next"), builders.uid(OTHER_UID), builders.port(81))
NEXT = KEY._replace(name="next")


async def kept(world: World) -> None:
    """A load balancer that outlived its Service; history is forgotten."""
    await world.reconciled()
    world.edit(KEEP)
    await world.reconcile()
    world.delete()
    await world.reconcile()
    assert world.gone


async def test_what_is_kept_serves_on_and_is_nobodys(world: World) -> None:
    await kept(world)
    assert world.cloud.load_balancers == {}
    assert world.cloud.released[f"{CLUSTER}/{UID}"].targets == ("n1", "n2", "n3")
    assert world.events.reasons()[-1] == "LoadBalancerKept"
    assert "DeletingLoadBalancer" not in world.events.reasons()


async def test_a_service_of_another_type_leaves_it_as_well(world: World) -> None:
    await world.reconciled()
    world.edit(KEEP)
    world.edit(builders.of_type("ClusterIP"))
    await world.reconcile()
    assert (world.cloud.changes(), world.finalizers, world.ingress) == (["RELEASE"], [], [])


async def test_so_does_one_that_vanishes(world: World) -> None:
    await world.reconciled()
    world.edit(KEEP)
    await world.reconcile()
    world.vanish()
    await world.reconcile()
    assert f"{CLUSTER}/{UID}" in world.cloud.released
    assert world.events.reasons()[-1] == "LoadBalancerKept"


async def test_the_wish_can_be_taken_back(world: World) -> None:
    await world.reconciled()
    world.edit(KEEP)
    await world.reconcile()
    world.edit(builders.annotated(ccm_annotations.KEEP, None))
    world.delete()
    await world.reconcile()
    assert (world.cloud.released, world.cloud.load_balancers) == ({}, {})


async def test_where_nothing_can_be_kept_the_deletion_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryBackend, "honours", frozenset())
    world.create(KEEP)
    await world.reconcile()
    assert world.events.reasons()[-1] == "AnnotationIgnored"
    world.delete()
    assert "remove the annotation" in await world.failed(TerminalError)
    assert (CLUSTER, UID) in world.cloud.load_balancers
    world.edit(builders.annotated(ccm_annotations.KEEP, None))
    await world.reconcile()
    assert world.gone


async def test_the_next_one_takes_it_over_with_its_address(world: World) -> None:
    await kept(world)
    address = world.cloud.released[f"{CLUSTER}/{UID}"].addresses["IPv4"]
    world.create(*ANOTHER, ADOPT)
    await world.reconciler.reconcile(NEXT)
    taken = world.cloud.load_balancers[CLUSTER, OTHER_UID]
    assert (taken.addresses["IPv4"], taken.listeners) == (address, (("TCP", 81, 30080),))
    assert world.cloud.changes()[-2:] == ["ADOPT", "UPDATE"]
    world.forget_history()
    await world.reconciler.reconcile(NEXT)
    assert world.cloud.calls == []


async def test_what_is_anothers_is_refused_and_nothing_is_made(world: World) -> None:
    await world.reconciled()
    world.create(*ANOTHER, ADOPT)
    with pytest.raises(TerminalError, match="another owner's"):
        await world.reconciler.reconcile(NEXT)
    assert set(world.cloud.load_balancers) == {(CLUSTER, UID)}
    assert world.events.reasons()[-1] == "SyncLoadBalancerFailed"


async def test_what_is_not_there_is_not_made_instead(world: World) -> None:
    world.create(ADOPT)
    assert "not there" in await world.failed(TerminalError)
    assert world.cloud.load_balancers == {}


ASKED: dict[str, Any] = {
    "by the annotation": builders.annotated(ccm_annotations.ADDRESSES, "203.0.113.77"),
    "by the field": {"spec": {"loadBalancerIP": "203.0.113.77"}},
}


@pytest.mark.parametrize("how", ASKED)
async def test_a_new_load_balancer_has_the_address_that_was_asked_for(world: World, how: str) -> None:
    world.create(ASKED[how])
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == ["203.0.113.77"]
    assert "AddressNotGiven" not in world.events.reasons()


@pytest.mark.parametrize("how", ASKED)
async def test_a_living_one_keeps_its_address_and_everything_else_is_carried_out(world: World, how: str) -> None:
    await world.reconciled()
    wish: Tweak = ASKED[how]
    world.edit(wish)
    world.edit(builders.port(81))
    await world.reconcile()
    assert [one["ip"] for one in world.ingress] == ["203.0.113.1"]
    assert world.cloud.load_balancers[CLUSTER, UID].listeners == (("TCP", 81, 30080),)
    assert world.events.reasons().count("AddressNotGiven") == 1
    await world.restarted()
    assert world.cloud.changes() == []
