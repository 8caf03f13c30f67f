"""What the conformance kit works on: two clusters at one cloud, and a look into it from the side."""

# ruff: noqa: S101 - these assertions are the tests'
from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from ccm_lb.backends.actual import ActualLoadBalancer
from ccm_lb.backends.base import LoadBalancerBackend
from ccm_lb.errors import CloudUnreachableError, RetryAfterError
from ccm_lb.objects import LoadBalancerStatus, Node, Service

__all__ = ["PATIENCE", "Bench", "Inspector", "Seen", "failure", "lost", "settled"]

PATIENCE = 120
"""How often a call that answers RetryAfterError is repeated before the test fails."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Seen:
    """
    One load balancer as the cloud has it.

    `listeners` are (protocol, port, node port); a cloud that keeps the destination port shows the port of the Service twice, and gives
    the fixture `service` such a node port. `targets` is a name for each target, of whatever kind.
    `source_ranges` are the networks of the clients that may connect; none for everybody.
    """

    owner_uid: str
    listeners: frozenset[tuple[str, int, int]]
    targets: frozenset[str]
    source_ranges: frozenset[str] = frozenset()


class Inspector(Protocol):
    """A look into the cloud that goes past the backend under test."""

    async def load_balancers(self, cluster_id: str) -> list[Seen]:
        """All load balancers that belong to the cluster, half-made ones included."""
        ...


@dataclasses.dataclass(frozen=True)
class Bench:
    """What a test works on: two clusters at one cloud, a Service, four nodes; `lose_next_reply` loses the answer to the next write."""

    backend: LoadBalancerBackend[Any]
    neighbour: LoadBalancerBackend[Any]
    inspector: Inspector
    service: Service
    nodes: Sequence[Node]
    lose_next_reply: Callable[[], None]

    async def ensure(self, service: Service | None = None, nodes: Sequence[Node] | None = None) -> LoadBalancerStatus:
        service, nodes = service or self.service, self.nodes if nodes is None else nodes
        return await settled(lambda: self.backend.ensure_load_balancer(service, nodes))

    async def delete(self, service: Service | None = None) -> None:
        await settled(lambda: self.backend.ensure_load_balancer_deleted(service or self.service))

    async def seen(self, backend: LoadBalancerBackend[Any] | None = None) -> dict[str, Seen]:
        """The load balancers of a cluster by the UID of their Service; two of one Service fail the test."""
        found = await self.inspector.load_balancers((backend or self.backend).context.cluster_id)
        by_uid = {one.owner_uid: one for one in found}
        assert len(by_uid) == len(found), f"more than one load balancer for a Service: {found}"
        return by_uid

    async def read(self, uid: str | None = None) -> list[ActualLoadBalancer]:
        """What the backend itself reads, all pages."""
        return [one async for page in self.backend.read_load_balancers(uid) for one in page]

    async def seen_one(self) -> Seen:
        """The only load balancer there is."""
        found = await self.seen()
        assert list(found) == [self.service.uid], f"expected exactly the load balancer of the Service, found {found}"
        return found[self.service.uid]


async def settled(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call for as long as its cloud is at work, as the controller does."""
    for _ in range(PATIENCE):
        try:
            return await call()
        except RetryAfterError as error:
            await asyncio.sleep(error.delay)
    raise AssertionError(f"still not settled after {PATIENCE} attempts")


async def failure(call: Callable[[], Awaitable[object]]) -> Exception | None:
    """What the call raises, if it does."""
    try:
        await call()
    except Exception as error:  # noqa: BLE001 - any exception is a failure to the controller
        return error
    return None


async def lost(call: Callable[[], Awaitable[object]]) -> bool:
    """Whether the call ends without knowing what became of its request."""
    error = await failure(call)
    return isinstance(error, CloudUnreachableError) or isinstance(
        getattr(error, "__cause__", None), CloudUnreachableError
    )
