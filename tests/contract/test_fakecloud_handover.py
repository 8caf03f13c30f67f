"""Load balancers that outlive their Service or are taken over from nobody, and addresses that were asked for, at the running fakecloud."""

from __future__ import annotations

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.fakecloud import FakecloudBackend, FakecloudConfig
from ccm_lb.errors import CCMError, CloudUnreachableError, TerminalError
from ccm_lb.objects import Service
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak
from fakecloud.models.inventory import AddressPool
from fakecloud.models.loadbalancers import LoadBalancer
from tests.contract.fakecloud_world import SERVICE, World, nodes

OTHER = builders.changed(SERVICE, builders.uid("5e7f1c3a-0000-4000-8000-000000000002"), builders.named("next"))


def asking(service: Service, name: str, value: str) -> Service:
    return builders.changed(service, builders.annotated(name, value))


def load_balancers(world: World) -> list[LoadBalancer]:
    return list(world.serving.cloud.state.load_balancers.values())


async def released(world: World) -> str:
    """The id of a load balancer that outlived SERVICE."""
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    await world.backend.release_load_balancer(SERVICE)
    [kept] = load_balancers(world)
    assert kept.spec.owner is None
    return kept.id


async def test_what_is_let_go_of_is_found_by_its_former_owner_no_more(world: World) -> None:
    name = await released(world)
    assert await world.backend.get_load_balancer(SERVICE) is None
    await world.backend.release_load_balancer(SERVICE)
    await world.backend.ensure_load_balancer_deleted(SERVICE)
    assert [one.id for one in load_balancers(world)] == [name]
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    assert len(load_balancers(world)) == 2


async def test_what_another_process_let_go_of_is_not_touched_by_one_that_remembers_it(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    other = world.make(FakecloudConfig(url=world.serving.url, token="secret"))
    await other.release_load_balancer(SERVICE)
    await world.backend.ensure_load_balancer_deleted(SERVICE)
    assert len(load_balancers(world)) == 1


async def test_the_next_one_takes_it_over_as_it_is_and_makes_it_its_own(world: World) -> None:
    name = await released(world)
    address = load_balancers(world)[0].addresses
    service = builders.changed(asking(OTHER, ccm_annotations.ADOPT, name), builders.port(18081))
    await world.backend.ensure_load_balancer(service, nodes(1, 2))
    [taken] = load_balancers(world)
    assert (taken.id, taken.addresses, taken.spec.owner and taken.spec.owner.uid) == (name, address, OTHER.uid)
    assert ([one.port for one in taken.spec.listeners], len(taken.spec.targets)) == ([18081], 2)
    assert world.events.reasons() == ["AdoptedLoadBalancer"]
    world.transport.sent.clear()
    await restarted(world).ensure_load_balancer(service, nodes(1, 2))
    await world.backend.ensure_load_balancer(OTHER, nodes(1, 2))  # the annotation is not needed any more
    assert len(load_balancers(world)) == 1
    await world.backend.ensure_load_balancer_deleted(service)
    assert load_balancers(world) == []


def restarted(world: World) -> FakecloudBackend:
    return world.make(FakecloudConfig(url=world.serving.url, token="secret"))


async def test_a_lost_answer_to_the_taking_over_is_made_up_for(world: World) -> None:
    name = await released(world)
    service = asking(OTHER, ccm_annotations.ADOPT, name)
    send = world.transport.request
    lost: list[str] = []

    async def lose(method: str, url: str, **options: object) -> object:
        answer = await send(method, url, **options)
        if method == "PATCH" and not lost:
            lost.append(url)
            raise CloudUnreachableError("no answer")
        return answer

    world.transport.request = lose  # type: ignore[method-assign, assignment]
    with pytest.raises(CloudUnreachableError):
        await world.backend.ensure_load_balancer(service, nodes(1))
    await restarted(world).ensure_load_balancer(service, nodes(1))
    [taken] = load_balancers(world)
    assert (taken.id, taken.spec.owner and taken.spec.owner.uid, len(taken.spec.targets)) == (name, OTHER.uid, 1)


async def test_what_is_anothers_or_not_there_is_refused_with_the_reason_and_nothing_is_made(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    [theirs] = load_balancers(world)
    for named, reason in ((theirs.id, f"belongs to {SERVICE.uid} of cluster c1"), ("lb/../x", "has no such load")):
        with pytest.raises(TerminalError, match=f'"{named}", which cannot be taken over: .*{reason}'):
            await world.backend.ensure_load_balancer(asking(OTHER, ccm_annotations.ADOPT, named), nodes(1))
    assert load_balancers(world) == [theirs]


async def test_a_service_that_has_one_does_not_take_a_second(world: World) -> None:
    name = await released(world)
    await world.backend.ensure_load_balancer(OTHER, nodes(1))
    with pytest.raises(TerminalError, match="already, which serves on"):
        await world.backend.ensure_load_balancer(asking(OTHER, ccm_annotations.ADOPT, name), nodes(1))
    assert [one.spec.owner is None for one in load_balancers(world)] == [True, False]


def last_address(world: World) -> str:
    [pool] = world.serving.cloud.state.pools.values()
    return str(pool.network[-2])


@pytest.mark.parametrize("how", ["annotation", "field"])
async def test_a_new_load_balancer_has_the_address_that_was_asked_for(world: World, how: str) -> None:
    asked = last_address(world)
    field: Tweak = {"spec": {"loadBalancerIP": asked}}
    tweak = field if how == "field" else builders.annotated(ccm_annotations.ADDRESSES, asked)
    status = await world.backend.ensure_load_balancer(builders.changed(SERVICE, tweak), nodes(1))
    assert [one.ip for one in status.ingress] == [asked]


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        pytest.param("192.0.2.9", TerminalError, "192.0.2.9 lies in no address pool", id="of no pool"),
        pytest.param("auto", TerminalError, r"addresses\[0\]", id="no address at all"),
        pytest.param("", CCMError, "belongs to another load balancer", id="in use"),
    ],
)
async def test_an_address_that_cannot_be_had_is_told_and_nothing_is_made(
    world: World, address: str, error: type[Exception], words: str
) -> None:
    taken = await world.backend.ensure_load_balancer(OTHER, nodes(1))
    asked: Tweak = {"spec": {"loadBalancerIP": address or taken.ingress[0].ip}}
    with pytest.raises(error, match=words):
        await world.backend.ensure_load_balancer(builders.changed(SERVICE, asked), nodes(1))
    assert len(load_balancers(world)) == 1


async def test_a_pool_is_asked_for_and_a_living_load_balancer_keeps_its_own(world: World) -> None:
    await world.serving.cloud.add_pool(AddressPool(name="front", cidr="127.83.7.0/29"))
    service = asking(SERVICE, ccm_annotations.ADDRESS_POOLS, "front")
    status = await world.backend.ensure_load_balancer(service, nodes(1))
    assert [one.ip for one in status.ingress] == ["127.83.7.1"]
    assert world.events.all == []
    [pool] = [one for one in world.serving.cloud.state.pools if one != "front"]
    later = await world.backend.ensure_load_balancer(asking(SERVICE, ccm_annotations.ADDRESS_POOLS, pool), nodes(1))
    assert later.ingress == status.ingress
    assert world.events.reasons() == ["AddressNotGiven"]


async def test_an_unknown_pool_is_told(world: World) -> None:
    with pytest.raises(TerminalError, match="no pool nowhere"):
        await world.backend.ensure_load_balancer(asking(SERVICE, ccm_annotations.ADDRESS_POOLS, "nowhere"), nodes(1))
