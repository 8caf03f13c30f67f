"""Services and Nodes as users make them, for the genuine API server."""

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]


def service(
    name: str,
    ports: Mapping[str, int] | None = None,
    *,
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Json:
    """A Service of type LoadBalancer; `ports` are by name, the API server picks the node ports."""
    wanted = {"http": 18080} if ports is None else ports
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, **({"annotations": dict(annotations)} if annotations else {}), **(metadata or {})},
        "spec": {
            "type": "LoadBalancer",
            "selector": {"app": name},
            "ports": [
                {"name": port_name, "port": port, "protocol": "TCP", "targetPort": 8080}
                for port_name, port in wanted.items()
            ],
            **spec,
        },
    }


def node(name: str, address: str, *, labels: Mapping[str, str] | None = None, provider_id: str = "") -> Json:
    """A Node with one InternalIP; its status has to be written after it is made, see `harness.stack`."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"providerID": provider_id} if provider_id else {},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def ingress(service: Mapping[str, Any] | None) -> Sequence[Json]:
    """`status.loadBalancer.ingress` of a Service, empty where there is none."""
    found: Sequence[Json] = ((service or {}).get("status", {}).get("loadBalancer") or {}).get("ingress") or []
    return found


def node_port(service: Mapping[str, Any], port: str | None = None) -> int:
    """The node port of a Service's port of that name, or of its first."""
    ports = service["spec"]["ports"]
    found: int = next(one["nodePort"] for one in ports if port in (None, one.get("name")))
    return found
