"""
Services and Nodes as the API server would send them, so that a test shows only what it is about.

A tweak is a piece of the API's JSON that is merged over the default (RFC 7386: objects are merged, lists replaced, null removes). The
functions below make the usual ones; a literal dict does for the rest:

    builders.service(builders.port(81), {"spec": {"loadBalancerIP": "203.0.113.40"}})
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ccm_lb.objects import CLEANUP_FINALIZER, Node, Service, parse_node, parse_service

__all__ = [
    "SERVICE_UID",
    "Json",
    "Tweak",
    "addresses",
    "annotated",
    "changed",
    "deleting",
    "families",
    "finalizers",
    "internal_ip",
    "labelled",
    "merged",
    "named",
    "node",
    "node_json",
    "nodes",
    "of_class",
    "of_type",
    "port",
    "port_json",
    "published",
    "service",
    "service_json",
    "tainted",
    "uid",
    "version",
]

Json = dict[str, Any]
Tweak = Mapping[str, Any]

SERVICE_UID = "5e7f1c3a-0000-4000-8000-000000000001"

_SERVICE: Tweak = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"namespace": "lb", "name": "web", "uid": SERVICE_UID, "resourceVersion": "1"},
    "spec": {
        "type": "LoadBalancer",
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080}],
        "selector": {"app": "web"},
        "clusterIPs": ["10.96.0.10"],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "sessionAffinity": "None",
        "externalTrafficPolicy": "Cluster",
        "allocateLoadBalancerNodePorts": True,
    },
    "status": {"loadBalancer": {}},
}


# ---- objects


def service(*tweaks: Tweak) -> Service:
    """The Service lb/web: port http 80/TCP, node port 30080, IPv4; nothing published, no finalizer."""
    return parse_service(service_json(*tweaks))


def service_json(*tweaks: Tweak) -> Json:
    """The same, as JSON."""
    return merged(_SERVICE, *tweaks)


def node(name: str = "n1", *tweaks: Tweak) -> Node:
    """A node `n<i>` with InternalIP 192.0.2.<10+i> and providerID fake://n<i>."""
    return parse_node(node_json(name, *tweaks))


def nodes(*names: str) -> tuple[Node, ...]:
    """Nodes of these names; n1, n2 and n3 without any."""
    return tuple(node(name) for name in names or ("n1", "n2", "n3"))


def node_json(name: str = "n1", *tweaks: Tweak) -> Json:
    """The JSON of `node`."""
    number = int(name.removeprefix("n"))
    default: Json = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"5e7f1c3a-0000-4000-9000-{number:012}", "resourceVersion": "1"},
        "spec": {"providerID": f"fake://{name}"},
        "status": {"addresses": [internal_ip(f"192.0.2.{10 + number}"), {"type": "Hostname", "address": name}]},
    }
    return merged(default, *tweaks)


def changed(obj: Service, *tweaks: Tweak) -> Service:
    """`obj` with more tweaks, for example another UID under the same name."""
    return parse_service(merged(obj.raw, *tweaks))


def merged(obj: Mapping[str, Any], *tweaks: Tweak) -> Json:
    """A copy of `obj` with the tweaks merged over it, first to last."""
    result: Json = copy.deepcopy(dict(obj))
    for tweak in tweaks:
        for name, value in tweak.items():
            if value is None:
                result.pop(name, None)
            elif isinstance(value, Mapping):
                below = result.get(name)
                result[name] = merged(below if isinstance(below, Mapping) else {}, value)
            else:
                result[name] = copy.deepcopy(value)
    return result


# ---- tweaks of either


def named(name: str) -> Tweak:
    """The name."""
    return {"metadata": {"name": name}}


def uid(value: str) -> Tweak:
    """The UID: another one is another object."""
    return {"metadata": {"uid": value}}


def version(number: int) -> Tweak:
    """The resourceVersion."""
    return {"metadata": {"resourceVersion": str(number)}}


def deleting() -> Tweak:
    """A deletion that waits for the finalizers."""
    return {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}


def finalizers(*names: str) -> Tweak:
    """The list of finalizers; without names only the load-balancer clean-up finalizer."""
    return {"metadata": {"finalizers": list(names) or [CLEANUP_FINALIZER]}}


def annotated(name: str, value: str | None) -> Tweak:
    """One annotation; None takes it off."""
    return {"metadata": {"annotations": {name: value}}}


def labelled(name: str, value: str | None) -> Tweak:
    """One label; None takes it off."""
    return {"metadata": {"labels": {name: value}}}


# ---- tweaks of a Service


def of_type(name: str) -> Tweak:
    """spec.type."""
    return {"spec": {"type": name}}


def of_class(name: str | None) -> Tweak:
    """spec.loadBalancerClass."""
    return {"spec": {"loadBalancerClass": name}}


def port(number: int, node_port: int = 30080, protocol: str = "TCP", name: str = "http") -> Tweak:
    """Exactly one port; for several, join `port_json`."""
    return {"spec": {"ports": [port_json(number, node_port, protocol, name)]}}


def port_json(number: int, node_port: int = 30080, protocol: str = "TCP", name: str = "http") -> Json:
    """One entry of spec.ports."""
    return {"name": name, "port": number, "protocol": protocol, "targetPort": 8080, "nodePort": node_port}


def families(*names: str) -> Tweak:
    """spec.ipFamilies, and the policy that fits."""
    return {
        "spec": {"ipFamilies": list(names), "ipFamilyPolicy": "SingleStack" if len(names) == 1 else "RequireDualStack"}
    }


def published(*ingress: Tweak) -> Tweak:
    """What stands in status.loadBalancer; without entries nothing does."""
    return {"status": {"loadBalancer": {"ingress": list(ingress) or None}}}


# ---- tweaks of a Node


def tainted(key: str) -> Tweak:
    """A node's only taint, NoSchedule."""
    return {"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}}


def internal_ip(address: str) -> Tweak:
    """An entry of a Node's status.addresses."""
    return {"type": "InternalIP", "address": address}


def addresses(*internal_ips: str) -> Tweak:
    """Exactly these InternalIPs."""
    return {"status": {"addresses": [internal_ip(address) for address in internal_ips]}}
