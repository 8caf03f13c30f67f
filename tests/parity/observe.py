"""What is compared, in a form that two runs have in common; pure."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
_CHANCE = re.compile(r"(?<=healthCheckNodePort )\d+")  # a number that the API server drew
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
COMPONENT = "service-controller"


@dataclasses.dataclass(frozen=True)
class Occurrence:
    """One Kubernetes event; an Event object that counts to three is three of them."""

    service: str
    type: str
    reason: str
    message: str
    component: str


@dataclasses.dataclass(frozen=True)
class Observation:
    """What one step led to: texts by the name of the compared field."""

    fields: Mapping[str, str]


# Upstream's events with the type and words that go without saying.
USUAL = {
    "EnsuringLoadBalancer": ("Normal", "Ensuring load balancer"),
    "EnsuredLoadBalancer": ("Normal", "Ensured load balancer"),
    "DeletingLoadBalancer": ("Normal", "Deleting load balancer"),
    "DeletedLoadBalancer": ("Normal", "Deleted load balancer"),
    "UpdatedLoadBalancer": ("Normal", "Updated load balancer with new hosts"),
    "UnAvailableLoadBalancer": ("Warning", "There are no available nodes for LoadBalancer"),
}


def service_text(service: Json | None) -> str:
    """The Service at rest: what a controller may change of it."""
    if service is None:
        return "gone"
    metadata, spec, status = service["metadata"], service["spec"], service.get("status") or {}
    parts = [spec["type"]]
    if spec.get("loadBalancerClass"):
        parts.append(f"class {spec['loadBalancerClass']}")
    if "deletionTimestamp" in metadata:
        parts.append("deleting")
    names = sorted(name.replace(FINALIZER, "cleanup") for name in metadata.get("finalizers", []))  # a set, in no order
    parts.append(f"finalizers {' '.join(names)}" if names else "no finalizer")
    parts.append(_ingress_text((status.get("loadBalancer") or {}).get("ingress") or []))
    parts += [f"condition {one['type']}={one['status']} {one['reason']}" for one in status.get("conditions") or []]
    return ", ".join(parts)


def _ingress_text(ingress: Sequence[Json]) -> str:
    if not ingress:
        return "no address"
    entries = []
    for one in ingress:
        text = one.get("hostname") or one.get("ip", "")
        ports = "".join(f" {port['port']}:{port.get('error', 'ok')}" for port in one.get("ports") or [])
        entries.append(" ".join(filter(None, [text, one.get("ipMode", "")])) + ports)
    return "address " + " + ".join(entries)


def event_texts(occurrences: Sequence[Occurrence]) -> list[str]:
    """One text for each, in their order."""
    return [_event_text(one) for one in occurrences]


def _event_text(one: Occurrence) -> str:
    text = one.reason if one.service == "s" else f"{one.service}: {one.reason}"
    if USUAL.get(one.reason) != (one.type, one.message):
        text += f" ({one.type}: {_CHANCE.sub('N', one.message)})"
    return text if one.component == COMPONENT else f"{text} from {one.component}"


def call_text(verb: str, service: str, nodes: Sequence[str], outcome: str) -> str:
    text = verb if service == "s" else f"{service}: {verb}"
    if verb in ("ensure", "update"):
        text += f"[{' '.join(nodes)}]"
    return text if outcome == "ok" else f"{text} ({outcome})"


def balancer_text(name: str, incarnation: int, service: Json, nodes: Sequence[Json]) -> str:
    """A load balancer by what it was made from; what the API server chose at random is left out."""
    spec = service["spec"]
    ports = [_port_text(port) for port in spec.get("ports") or []]
    parts = [f"{name}#{incarnation}", " ".join(ports)]
    parts.append("to " + (" ".join(sorted(_node_text(node) for node in nodes)) or "nothing"))
    shown = [
        *("sessionAffinity", "externalTrafficPolicy", "loadBalancerSourceRanges", "ipFamilies", "loadBalancerIP"),
        *("externalIPs", "sessionAffinityConfig", "allocateLoadBalancerNodePorts"),
    ]
    usual = {
        "sessionAffinity": "None",
        "externalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "allocateLoadBalancerNodePorts": True,
    }
    parts += [f"{key} {spec[key]}" for key in shown if spec.get(key) is not None and spec[key] != usual.get(key)]
    notes = {k: v for k, v in (service["metadata"].get("annotations") or {}).items() if k != LAST_APPLIED}
    return ", ".join(parts + [f"annotations {notes}"] * bool(notes)).replace("'", "")


def _port_text(port: Json) -> str:
    node = "np" if port.get("nodePort") else "-"
    app = f" {port['appProtocol']}" if port.get("appProtocol") else ""
    return f"{port.get('name', '')}:{port['protocol']}/{port['port']}/{node}/{port.get('targetPort')}{app}"


def _node_text(node: Json) -> str:
    addresses = [one["address"] for one in node.get("status", {}).get("addresses") or []]
    return f"{node['metadata']['name']}({(node['spec'].get('providerID') or 'no id')} {'/'.join(addresses)})"
