"""Load balancers as the API shows them."""

from typing import Annotated, Literal

from pydantic import Field

from fakecloud.models.base import Address, Cidr, Family, Model, Name, Port, Seconds
from fakecloud.models.listeners import Algorithm, HealthCheck, Listener, Protocol, SessionAffinity, Target
from fakecloud.models.loadbalancers import (
    AddressPools,
    AssignedAddress,
    ConnectionLimit,
    LoadBalancer,
    Owner,
    Tags,
    WhenAllUnhealthy,
)

LoadBalancerState = Literal["active", "pending", "deleting", "error"]


class TargetStatus(Model):
    """One target on one port; `healthy` is null until the first probe has ended. Counters sum up all listeners."""

    target: str
    address: Address | None
    port: Port
    healthy: bool | None
    reason: str
    connections: int = 0
    active_connections: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class ListenerStatus(Model):
    """Counters since the listener opened; `error` says why it is not open. UDP counts flows as connections."""

    protocol: Protocol
    port: Port
    address: Address
    open: bool
    error: str | None
    connections: int
    active_connections: int
    bytes_in: int
    bytes_out: int


class LoadBalancerStatus(Model):
    targets: tuple[TargetStatus, ...]
    listeners: tuple[ListenerStatus, ...]


class LoadBalancerView(Model):
    """A load balancer as the API shows it. `etag` changes with the specification, not with the status."""

    id: str
    generation: int
    etag: str
    state: Annotated[
        LoadBalancerState,
        Field(
            description="pending: an action is not finished, traffic goes as before it; deleting: it goes when its action is "
            "done; error: its last one failed"
        ),
    ]
    action: Annotated[str | None, Field(description="Its latest action's id, see /v1/actions")]
    created_at: str
    name: Name
    owner: Owner | None
    tags: Tags
    families: tuple[Family, ...]
    address_pools: AddressPools
    addresses: tuple[AssignedAddress, ...]
    listeners: tuple[Listener, ...]
    targets: tuple[Target, ...]
    health_check: HealthCheck | None
    source_ranges: tuple[Cidr, ...]
    algorithm: Algorithm
    session_affinity: SessionAffinity | None
    when_all_unhealthy: WhenAllUnhealthy
    drain_timeout_seconds: Seconds | None
    connection_limit: ConnectionLimit | None
    delete_protection: bool
    status: LoadBalancerStatus


class LoadBalancerList(Model):
    items: tuple[LoadBalancerView, ...]
    next_cursor: str | None


_SPECIFIED = (
    "name",
    "owner",
    "tags",
    "families",
    "address_pools",
    "listeners",
    "targets",
    "health_check",
    "source_ranges",
    "algorithm",
    "session_affinity",
    "when_all_unhealthy",
    "drain_timeout_seconds",
    "connection_limit",
    "delete_protection",
)


def view(
    load_balancer: LoadBalancer, status: LoadBalancerStatus, state: LoadBalancerState, action: str | None
) -> LoadBalancerView:
    """Join what is kept with what the data plane reports; every part was validated before."""
    return LoadBalancerView.model_construct(
        id=load_balancer.id,
        generation=load_balancer.generation,
        etag=load_balancer.etag,
        state=state,
        action=action,
        created_at=load_balancer.created_at,
        addresses=load_balancer.addresses,
        status=status,
        **{name: getattr(load_balancer.spec, name) for name in _SPECIFIED},
    )
