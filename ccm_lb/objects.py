"""
Kubernetes objects, as narrow as this controller needs them.

Frozen models over the API server's JSON: unknown fields are ignored, aliases are the API's camelCase, absent lists are empty.
What a provider needs beyond these fields is in `raw`, the object as it was received (without managedFields), to be read only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

__all__ = [
    "CLEANUP_FINALIZER",
    "EXCLUDE_LABEL",
    "TO_BE_DELETED_TAINT",
    "IPMode",
    "Key",
    "LoadBalancerIngress",
    "LoadBalancerStatus",
    "Node",
    "NodeAddress",
    "NodeSpec",
    "NodeStatus",
    "ObjectMeta",
    "PortStatus",
    "Service",
    "ServicePort",
    "ServiceSpec",
    "ServiceStatus",
    "Taint",
    "parse_node",
    "parse_service",
]

CLEANUP_FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler"


class Key(NamedTuple):
    """What a Service is called. It outlives the object: a Service that is created again has the same key and another UID."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class IPMode(enum.StrEnum):
    """
    How the service proxy treats an ingress IP (KEP-1860).

    VIP: kube-proxy short-cuts traffic for the address to the Service. PROXY: kube-proxy leaves the address alone, so that
    traffic from inside the cluster passes the load balancer too. A value that a later Kubernetes adds stays a plain string.
    """

    VIP = "VIP"
    PROXY = "Proxy"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")


class ObjectMeta(_Model):
    """`metadata`, as far as it is needed; times are RFC 3339."""

    name: str
    uid: str
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class ServicePort(_Model):
    """One of `spec.ports`; `node_port` is 0 where none was allocated."""

    port: int
    protocol: str = "TCP"
    name: str = ""
    node_port: int = 0
    target_port: int | str | None = None
    app_protocol: str | None = None


class ServiceSpec(_Model):
    """What the Service's user asks for, with the API server's defaults."""

    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] = ()
    selector: Mapping[str, str] = Field(default_factory=dict)
    load_balancer_class: str | None = None
    load_balancer_ip: str = Field(default="", alias="loadBalancerIP")
    load_balancer_source_ranges: tuple[str, ...] = ()
    cluster_ips: tuple[str, ...] = Field(default=(), alias="clusterIPs")
    external_ips: tuple[str, ...] = Field(default=(), alias="externalIPs")
    ip_families: tuple[str, ...] = Field(default=(), alias="ipFamilies")
    ip_family_policy: str | None = Field(default=None, alias="ipFamilyPolicy")
    session_affinity: str = "None"
    session_affinity_config: Mapping[str, Any] | None = None
    external_traffic_policy: str = ""
    health_check_node_port: int = 0
    allocate_load_balancer_node_ports: bool = True


class PortStatus(_Model):
    """What a load balancer says of one port (KEP-1435): `error` is a CamelCase reason, absent when the port is served."""

    port: int
    protocol: str
    error: str | None = None


class LoadBalancerIngress(_Model):
    """One address that a load balancer answers on. `ip_mode` belongs to `ip` and means VIP when absent."""

    ip: str | None = None
    hostname: str | None = None
    # Left to right: the two known values become IPMode, anything else stays the string that it is.
    ip_mode: Annotated[IPMode | str | None, Field(alias="ipMode", union_mode="left_to_right")] = None
    ports: tuple[PortStatus, ...] = ()


class LoadBalancerStatus(_Model):
    """What EnsureLoadBalancer returns and `status.loadBalancer` holds; the order of the ingress is part of the value."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(_Model):
    """What is published of a Service."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class Service(_Model):
    """A Service as last seen; `raw` is the whole object without managedFields, not to be changed."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()
    raw: Mapping[str, Any] = Field(default_factory=dict, exclude=True, repr=False)

    @property
    def key(self) -> Key:
        return Key(self.metadata.namespace, self.metadata.name)

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def has_finalizer(self) -> bool:
        """Whether the load-balancer clean-up finalizer, which is ours and upstream's alike, is on it."""
        return CLEANUP_FINALIZER in self.metadata.finalizers

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class Taint(_Model):
    """One of `spec.taints` of a Node."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(_Model):
    """What a Node is to be; `provider_id` names its machine in the cloud (`fakecloud://server-1`)."""

    provider_id: str = Field(default="", alias="providerID")
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeAddress(_Model):
    """One of `status.addresses` of a Node; its type may be one that only a later Kubernetes has."""

    type: Literal["InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS"] | str
    address: str


class NodeStatus(_Model):
    """What a Node says of itself."""

    addresses: tuple[NodeAddress, ...] = ()


class Node(_Model):
    """A Node as last seen; `raw` is the whole object without managedFields, not to be changed."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    raw: Mapping[str, Any] = Field(default_factory=dict, exclude=True, repr=False)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def internal_ips(self) -> tuple[str, ...]:
        """The node's InternalIP addresses, in the order of its status; the first of a family is the one to send traffic to."""
        return tuple(one.address for one in self.status.addresses if one.type == "InternalIP")

    @property
    def ips(self) -> tuple[str, ...]:
        """All its IP addresses, internal and external."""
        return tuple(one.address for one in self.status.addresses if one.type in ("InternalIP", "ExternalIP"))

    def internal_ip(self, family: str) -> str | None:
        """The InternalIP of a family, IPv4 or IPv6, that traffic is sent to; None if the node has none."""
        return next((ip for ip in self.internal_ips if (":" in ip) == (family == "IPv6")), None)


def _without_managed_fields(obj: Mapping[str, Any]) -> dict[str, Any]:
    # managedFields are a third of an object's bytes, and everything seen is kept for as long as it exists.
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def parse_service(obj: Mapping[str, Any]) -> Service:
    """The API server's JSON of a Service, typed. Raises pydantic.ValidationError for anything that is not one."""
    raw = _without_managed_fields(obj)
    return Service.model_validate({**raw, "raw": raw})


def parse_node(obj: Mapping[str, Any]) -> Node:
    """The API server's JSON of a Node, typed. Raises pydantic.ValidationError for anything that is not one."""
    raw = _without_managed_fields(obj)
    # A Node's status lists every image on the machine: kilobytes that no load balancer needs.
    raw["status"] = {
        name: value for name, value in raw.get("status", {}).items() if name not in ("images", "volumesInUse")
    }
    return Node.model_validate({**raw, "raw": raw})
