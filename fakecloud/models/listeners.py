"""The parts of a load balancer: listeners, targets, health checks."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from fakecloud.models.base import Address, Identifier, Model, Port, Seconds

Protocol = Literal["TCP", "UDP"]
ProxyProtocol = Literal["none", "v1", "v2"]
Algorithm = Literal["round-robin", "least-connections", "source-hash"]


class HealthCheck(Model):
    """How targets are probed; durations in seconds. Without a port, each listener's targetPort is probed."""

    protocol: Literal["tcp", "http", "https"] = Field(
        default="tcp", description="https does not verify the certificate: it asks whether the target works"
    )
    port: Port | None = None
    path: Annotated[str, Field(pattern=r"^/[!-~]*$", max_length=1024)] | None = Field(
        default=None, description="For http and https; / when absent. Any answer from 200 to 399 is healthy"
    )
    interval_seconds: Seconds = 2.0
    timeout_seconds: Seconds = 1.0
    healthy_threshold: Annotated[int, Field(ge=1, le=100)] = 2
    unhealthy_threshold: Annotated[int, Field(ge=1, le=100)] = 2

    @field_validator("path")
    @classmethod
    def _path_needs_http(cls, path: str | None, info: ValidationInfo) -> str | None:
        if path is not None and info.data.get("protocol") == "tcp":
            raise ValueError('needs protocol "http" or "https"')
        return path


class Listener(Model):
    """One open port of the load balancer."""

    protocol: Protocol = "TCP"
    port: Port
    target_port: Annotated[Port, Field(description="The port on every target, for Kubernetes the node port")]
    name: Annotated[str, Field(max_length=255)] | None = None
    proxy_protocol: ProxyProtocol = Field(default="none", description="For TCP: tell targets who the client is")
    idle_timeout_seconds: Annotated[float, Field(ge=0.05, le=86_400)] | None = Field(
        default=None, description="Connections without a byte for so long are closed; never when absent, UDP: 60"
    )
    health_check: HealthCheck | None = Field(default=None, description="In place of the load balancer's")

    @field_validator("proxy_protocol")
    @classmethod
    def _proxy_needs_tcp(cls, proxy_protocol: ProxyProtocol, info: ValidationInfo) -> ProxyProtocol:
        if proxy_protocol != "none" and info.data.get("protocol") == "UDP":
            raise ValueError('needs protocol "TCP"')
        return proxy_protocol


class Target(Model):
    """Where traffic goes: a registered server by its id, or a bare address. Exactly one of the two."""

    server: Identifier | None = None
    address: Address | None = None
    port: Port | None = Field(default=None, description="In place of the listeners' targetPort")
    weight: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="Its share of new connections; 1 when absent, 0: none"
    )
    drain: bool = Field(default=False, description="No new connections; those that exist go on")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.server is None) == (self.address is None):
            raise ValueError("a target has exactly one of server and address")
        return self

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in serialize(self).items() if value is not None and value is not False}

    @property
    def label(self) -> str:
        """How messages and the health list name the target."""
        return self.server or self.address or ""


class SessionAffinity(Model):
    """A client's address keeps its target."""

    type: Literal["ClientIP"] = "ClientIP"
    timeout_seconds: Annotated[float, Field(ge=0.05, le=86_400)] = Field(
        default=10_800.0, description="Since the client's last connection"
    )


def distinct_ports(listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """Raises ValueError when a port is named twice for one protocol; TCP and UDP may share a number."""
    seen: set[tuple[str, int]] = set()
    for listener in listeners:
        if (listener.protocol, listener.port) in seen:
            raise ValueError(f"name port {listener.port}/{listener.protocol} twice; each may occur once")
        seen.add((listener.protocol, listener.port))
    return listeners
