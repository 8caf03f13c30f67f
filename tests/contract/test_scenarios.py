"""Whose load balancer it is: names that collide, accounts that are shared, lists that are long. fakecloud over real HTTP."""

from __future__ import annotations

import uuid

import pytest

from ccm_lb.backends.base import BackendContext
from ccm_lb.backends.fakecloud import FakecloudBackend, FakecloudConfig
from ccm_lb.clock import SystemClock
from ccm_lb.objects import Service
from ccm_lb.redaction import Secrets
from ccm_lb.testing import builders
from tests.contract.fakecloud_world import World, nodes

LONG = "payments-of-the-whole-company-and-all-of-its"  # 43 characters, where a cloud may take 32


def backend_of(world: World, cluster: str) -> FakecloudBackend:
    """A controller of that cluster, in the same account."""
    config = FakecloudConfig(url=world.serving.url, token="secret")
    return FakecloudBackend(BackendContext(cluster, config, world.transport, SystemClock(), world.events, Secrets()))


def service(number: int, *tweaks: builders.Tweak, name: str = "web") -> Service:
    uid = str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))
    return builders.service(builders.uid(uid), builders.named(name), builders.port(18080), *tweaks)


def names(world: World) -> dict[tuple[str, str], str]:
    """The names of the load balancers by their owners."""
    found = world.serving.cloud.state.load_balancers.values()
    return {one.spec.owner.key: one.spec.name for one in found if one.spec.owner is not None}


@pytest.mark.scenario("B05")
async def test_two_clusters_with_the_same_name_and_the_same_service_never_touch_each_others_load_balancer(
    world: World,
) -> None:
    ours, theirs = backend_of(world, "kubernetes"), backend_of(world, "kubernetes")
    first, second = service(1), service(2)
    kept = await ours.ensure_load_balancer(first, nodes(1))
    before = dict(world.serving.cloud.state.load_balancers)
    assert await theirs.get_load_balancer(second) is None
    await theirs.ensure_load_balancer(second, nodes(2))
    assert len(set(names(world).values())) == 2
    await theirs.ensure_load_balancer_deleted(second)
    assert dict(world.serving.cloud.state.load_balancers) == before
    assert await ours.get_load_balancer(first) == kept


@pytest.mark.scenario("B45")
async def test_names_that_differ_behind_the_cloud_s_limit_alone_make_load_balancers_of_their_own(world: World) -> None:
    owners = [
        (backend_of(world, f"production-euro{letter}"), service(number, name=f"{LONG}-{end}"))
        for letter in "ab"
        for number, end in enumerate(("a", "b"), start=1 if letter == "a" else 3)
    ]
    addresses = [(await backend.ensure_load_balancer(one, nodes(1))).ingress[0].ip for backend, one in owners]
    assert len(set(addresses)) == 4
    assert len(set(names(world).values())) == 4
    assert all(len(name) <= 32 for name in names(world).values())
    gone, one = owners.pop(1)
    await gone.ensure_load_balancer_deleted(one)
    del addresses[1]
    found = [await backend.get_load_balancer(one) for backend, one in owners]
    assert [status.ingress[0].ip for status in found if status is not None] == addresses


@pytest.mark.scenario("B49")
async def test_a_load_balancer_is_found_among_more_than_a_page_of_others(world: World) -> None:
    for number in range(130):
        owner = world.backend if number == 120 else backend_of(world, "another")
        await owner.ensure_load_balancer(service(number), nodes(1))
    listed = await world.transport.request(
        "GET", f"{world.serving.url}/v1/load-balancers", headers={"Authorization": "Bearer secret"}
    )
    assert len(listed.json()["items"]) < 130, "they do not fit on a page"
    world.transport.sent.clear()
    later = backend_of(world, "c1")
    await later.ensure_load_balancer(service(120, builders.port(18081)), nodes(1))
    await later.ensure_load_balancer_deleted(service(120))
    assert [method for method, _ in world.transport.writes()] == ["PATCH", "DELETE"]
    assert len(names(world)) == 129
