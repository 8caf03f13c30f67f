"""A cloud that accepts a delete and carries it out later, or not at all; and families that come and go."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ccm_lb.errors import CCMError, RetryAfterError, TerminalError
from ccm_lb.testing import builders
from tests.contract.fakecloud_world import SERVICE, World, nodes, stored
from tests.fakecloud.clients import until


async def call(world: World, method: str, path: str, body: Any = None) -> Any:
    headers = {"Authorization": "Bearer secret"}
    response = await world.transport.request(method, world.serving.url + path, body=body, headers=headers)
    return response.json() if response.body else None


@contextlib.asynccontextmanager
async def action_fault(world: World, outcome: str, *methods: str) -> AsyncIterator[None]:
    effect = {"kind": "action", "outcome": outcome, "message": "no capacity"}
    fault = await call(world, "POST", "/v1/faults", {"match": {"methods": list(methods)}, "effect": effect})
    yield
    await call(world, "DELETE", f"/v1/faults/{fault['id']}")


async def idle(world: World) -> bool:
    return not world.serving.cloud.ledger.unfinished()


async def test_a_load_balancer_counts_as_deleted_when_it_is_gone(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    async with action_fault(world, "pending", "DELETE"):
        for _ in range(2):
            with pytest.raises(RetryAfterError, match="still works on the load balancer"):
                await world.backend.ensure_load_balancer_deleted(SERVICE)
        # A Service that is wanted again meanwhile waits for a load balancer of its own.
        with pytest.raises(RetryAfterError, match="still works on the load balancer"):
            await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    await until(lambda: idle(world))
    await world.backend.ensure_load_balancer_deleted(SERVICE)
    assert await world.backend.get_load_balancer(SERVICE) is None


async def test_a_delete_that_fails_is_told_and_tried_again(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    async with action_fault(world, "error", "DELETE"):
        with pytest.raises(RetryAfterError):
            await world.backend.ensure_load_balancer_deleted(SERVICE)
        await until(lambda: idle(world))
        with pytest.raises(CCMError, match="could not be deleted; this was asked for again"):
            await world.backend.ensure_load_balancer_deleted(SERVICE)
        await until(lambda: idle(world))
    await world.backend.ensure_load_balancer_deleted(SERVICE)
    assert world.serving.cloud.state.load_balancers == {}


async def test_a_family_that_comes_or_goes_is_one_write_of_the_families(world: World) -> None:
    await world.backend.ensure_load_balancer(SERVICE, nodes(1))
    world.transport.sent.clear()
    both = builders.changed(SERVICE, {"spec": {"ipFamilies": ["IPv4", "IPv6"]}})
    # This cloud is on loopback, where there is no IPv6: what served goes on serving.
    with pytest.raises(TerminalError, match=r"families\[1\]: IPv6 .* --addresses interface"):
        await world.backend.ensure_load_balancer(both, nodes(1))
    assert world.transport.writes() == [("PATCH", {"families": ["IPv4", "IPv6"]})]
    assert (await stored(world)).families == ("IPv4",)
