"""Load balancers: what a client asks for, what is kept, and what is shown."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic.config import JsonDict

from fakecloud.models.base import Address, Cidr, Family, Identifier, Model, Name, Port, Seconds


class Owner(Model):
    """Whose load balancer it is: a cluster's id and the UID of the Service in it. Creation is idempotent by it."""

    cluster: Name
    uid: Name


class Listener(Model):
    """One open port of the load balancer."""

    protocol: Literal["TCP"] = "TCP"
    port: Port
    target_port: Annotated[Port, Field(description="The port on every target, for Kubernetes the node port")]
    name: Annotated[str, Field(max_length=255)] | None = None
    proxy_protocol: Literal["none"] = "none"


class Target(Model):
    """Where traffic goes: a registered server by its id, or a bare address. Exactly one of the two."""

    server: Identifier | None = None
    address: Address | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.server is None) == (self.address is None):
            raise ValueError("a target has exactly one of server and address")
        return self

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, serialize: SerializerFunctionWrapHandler) -> dict[str, str]:
        return {name: value for name, value in serialize(self).items() if value is not None}

    @property
    def label(self) -> str:
        """How messages and the health list name the target."""
        return self.server or self.address or ""


class HealthCheck(Model):
    """How targets are probed; durations in seconds. Without a port, each listener's targetPort is probed."""

    protocol: Literal["tcp", "http"] = "tcp"
    port: Port | None = None
    path: Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=1024)] | None = Field(
        default=None, description="For http only; / when absent. Any answer from 200 to 399 is healthy"
    )
    interval_seconds: Seconds = 2.0
    timeout_seconds: Seconds = 1.0
    healthy_threshold: Annotated[int, Field(ge=1, le=100)] = 2
    unhealthy_threshold: Annotated[int, Field(ge=1, le=100)] = 2

    @model_validator(mode="after")
    def _path_needs_http(self) -> Self:
        if self.path is not None and self.protocol != "http":
            raise ValueError('path needs protocol "http"')
        return self


Tags = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=255)], Annotated[str, Field(max_length=1024)]],
    Field(max_length=64),
]
Listeners = Annotated[tuple[Listener, ...], Field(min_length=1, max_length=256)]
Targets = Annotated[tuple[Target, ...], Field(max_length=5000)]
SourceRanges = Annotated[tuple[Cidr, ...], Field(max_length=1024)]

_EXAMPLE: JsonDict = {
    "name": "shop/web",
    "owner": {"cluster": "c1", "uid": "7d9a0f4e-0a5c-4a2c-9a51-6f0f7a0a1f10"},
    "tags": {"service": "shop/web"},
    "families": ["IPv4"],
    "listeners": [{"protocol": "TCP", "port": 8080, "targetPort": 30080, "name": "http"}],
    "targets": [{"server": "node-1"}, {"address": "127.0.0.12"}],
    "healthCheck": {"protocol": "tcp", "intervalSeconds": 2, "timeoutSeconds": 1},
    "sourceRanges": ["127.0.0.0/8"],
}


def _distinct_ports(listeners: tuple[Listener, ...]) -> None:
    seen: set[tuple[str, int]] = set()
    for listener in listeners:
        if (listener.protocol, listener.port) in seen:
            raise ValueError(f"listeners name port {listener.port}/{listener.protocol} twice; each may occur once")
        seen.add((listener.protocol, listener.port))


class LoadBalancerSpec(Model):
    """The body of a create: all that a client decides about a load balancer."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    name: Name
    owner: Owner
    tags: Tags = Field(default_factory=dict)
    families: Annotated[tuple[Literal["IPv4"], ...], Field(min_length=1, max_length=1)] = ("IPv4",)
    addresses: Annotated[tuple[Address, ...], Field(max_length=1)] = Field(
        default=(), description="Addresses asked for by name; they must lie in a pool and be free"
    )
    listeners: Listeners
    targets: Targets = ()
    health_check: HealthCheck | None = None
    source_ranges: SourceRanges = Field(default=(), description="Clients that may connect; empty means everyone")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _distinct_ports(self.listeners)
        return self


class LoadBalancerPatch(Model):
    """A partial update: each field named here replaces the whole field, the others stay as they are."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"targets": [{"server": "node-2"}]}]})

    name: Name = ""
    tags: Tags = Field(default_factory=dict)
    listeners: Listeners = ()
    targets: Targets = ()
    health_check: HealthCheck | None = None
    source_ranges: SourceRanges = ()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _distinct_ports(self.listeners)
        return self

    def applied_to(self, spec: LoadBalancerSpec) -> LoadBalancerSpec:
        """The spec with the fields that the client named replaced."""
        return spec.model_copy(update={field: getattr(self, field) for field in self.model_fields_set})


class AssignedAddress(Model):
    family: Family
    address: Address


class LoadBalancer(Model):
    """What is kept: the request, and what the cloud decided. `sequence` orders the listing."""

    id: str
    sequence: int
    generation: int
    created_at: str
    spec: LoadBalancerSpec
    addresses: tuple[AssignedAddress, ...]

    @property
    def etag(self) -> str:
        return f'"{self.generation}"'


class TargetHealth(Model):
    """One target on one port; `healthy` is null until the first probe has ended."""

    target: str
    address: Address | None
    port: Port
    healthy: bool | None
    reason: str


class ListenerStatus(Model):
    """Counters since the listener opened; `error` says why it is not open."""

    protocol: Literal["TCP"]
    port: Port
    open: bool
    error: str | None
    connections: int
    active_connections: int
    bytes_in: int
    bytes_out: int


class LoadBalancerStatus(Model):
    targets: tuple[TargetHealth, ...]
    listeners: tuple[ListenerStatus, ...]


class LoadBalancerView(Model):
    """A load balancer as the API shows it. `etag` changes with the specification, not with the status."""

    id: str
    generation: int
    etag: str
    state: Literal["active"]
    created_at: str
    name: Name
    owner: Owner
    tags: Tags
    families: tuple[Family, ...]
    addresses: tuple[AssignedAddress, ...]
    listeners: tuple[Listener, ...]
    targets: tuple[Target, ...]
    health_check: HealthCheck | None
    source_ranges: tuple[Cidr, ...]
    status: LoadBalancerStatus


class LoadBalancerList(Model):
    items: tuple[LoadBalancerView, ...]
    next_cursor: str | None


def view(load_balancer: LoadBalancer, status: LoadBalancerStatus) -> LoadBalancerView:
    """Join what is kept with what the data plane reports."""
    spec = load_balancer.spec
    return LoadBalancerView(
        id=load_balancer.id,
        generation=load_balancer.generation,
        etag=load_balancer.etag,
        state="active",
        created_at=load_balancer.created_at,
        name=spec.name,
        owner=spec.owner,
        tags=spec.tags,
        families=spec.families,
        addresses=load_balancer.addresses,
        listeners=spec.listeners,
        targets=spec.targets,
        health_check=spec.health_check,
        source_ranges=spec.source_ranges,
        status=status,
    )
