"""
What the end has to be, by the promises of the Kubernetes API alone; pure, and written without a look at either controller.

- A Service of type LoadBalancer without a class, not under deletion, has a load balancer made from its spec as it is now, with every
  node that is neither excluded by the label nor under deletion nor about to be removed by the cluster autoscaler; it carries the
  clean-up finalizer, and its status says the load balancer's addresses.
- Everything else has no load balancer, not our finalizer, and no address (but for a class of somebody else's, whose the address is).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.parity.observe import FINALIZER, LAST_APPLIED

Json = Mapping[str, Any]
EXCLUDE = "node.kubernetes.io/exclude-from-external-load-balancers"
LEAVING = "ToBeDeletedByClusterAutoscaler"
USER = "ccm-lb-tests"  # the fieldManager of what the scenarios write
_FALSE = {"0", "f", "F", "false", "False", "FALSE"}


def serves(node: Json) -> bool:
    """Whether load balancers are to send traffic to the node."""
    metadata = node["metadata"]
    label = (metadata.get("labels") or {}).get(EXCLUDE)
    excluded = label is not None and label not in _FALSE
    leaving = any(taint["key"] == LEAVING for taint in node.get("spec", {}).get("taints") or [])
    return not excluded and not leaving and "deletionTimestamp" not in metadata


def targets(nodes: Sequence[Json]) -> list[tuple[str, str, tuple[str, ...]]]:
    """(name, providerID, addresses) of the nodes, sorted."""
    return sorted(
        (
            node["metadata"]["name"],
            node["spec"].get("providerID") or "",
            tuple(one["address"] for one in node.get("status", {}).get("addresses") or []),
        )
        for node in nodes
    )


def wanted(service: Json | None) -> bool:
    """Whether the Service asks this controller for a load balancer."""
    if service is None or "deletionTimestamp" in service["metadata"]:
        return False
    return service["spec"]["type"] == "LoadBalancer" and not service["spec"].get("loadBalancerClass")


def made_from(service: Json) -> Json:
    """What of a Service a load balancer is made from."""
    spec = {key: value for key, value in service["spec"].items() if key not in _NOT_MADE_FROM and value}
    notes = dict(service["metadata"].get("annotations") or {})
    notes.pop(LAST_APPLIED, None)
    return {"spec": spec, "annotations": notes}


_NOT_MADE_FROM = {
    "selector",
    "publishNotReadyAddresses",
    "internalTrafficPolicy",
    "clusterIP",
    "clusterIPs",
    "trafficDistribution",
}


def faults(
    name: str, service: Json | None, balancers: Mapping[str, tuple[Json, Sequence[Json]]], nodes: Sequence[Json]
) -> list[str]:
    """
    What is wrong at the end with the Service `name` (None: it is gone) and the load balancers of this name, which are given as (the
    Service, the nodes) that they were made from, by UID; `nodes` are all of the cluster's.
    """
    if service is None or not wanted(service):
        found = [f"{name}: leaked load balancer"] * bool(balancers)
        return found + (_left(name, service) if service is not None else [])
    uid = service["metadata"]["uid"]
    found = [f"{name}: leaked load balancer"] * any(other != uid for other in balancers)
    if uid not in balancers:
        return [*found, f"{name}: no load balancer"]
    made, made_for = balancers[uid]
    found += [f"{name}: outdated {part}" for part in _outdated(made, service)]
    if targets(made_for) != targets([node for node in nodes if serves(node)]):
        found.append(f"{name}: outdated nodes")
    if FINALIZER not in service["metadata"].get("finalizers", []):
        found.append(f"{name}: no finalizer")
    return found


def _outdated(made: Json, service: Json) -> list[str]:
    have, want = made_from(made), made_from(service)
    keys = sorted({*have["spec"], *want["spec"]})
    parts = [key for key in keys if have["spec"].get(key) != want["spec"].get(key)]
    return parts + ["annotations"] * (have["annotations"] != want["annotations"])


def _left(name: str, service: Json) -> list[str]:
    found = []
    if FINALIZER in service["metadata"].get("finalizers", []) and not _put_on_by_user(service):
        found.append(f"{name}: finalizer left")
    ours = not service["spec"].get("loadBalancerClass")
    if ours and ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress"):
        found.append(f"{name}: address left")
    return found


def _put_on_by_user(service: Json) -> bool:
    """A finalizer of this name that some other controller, here the tests' client, put on a Service of its class."""
    managers = [
        one["manager"]
        for one in service["metadata"].get("managedFields", [])
        if f'v:"{FINALIZER}"' in one.get("fieldsV1", {}).get("f:metadata", {}).get("f:finalizers", {})
    ]
    return managers == [USER]


def status_faults(name: str, service: Json | None, answered: Json | None) -> list[str]:
    """Whether the status says what the cloud answered last (`answered`: a LoadBalancerStatus) for a Service that is served."""
    if service is None or answered is None or not wanted(service):
        return []
    says = [_address(one) for one in ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []]
    return [] if says == [_address(one) for one in answered.get("ingress") or []] else [f"{name}: wrong address"]


def _address(entry: Json) -> tuple[str, str, str]:
    ip = entry.get("ip", "")
    return ip, entry.get("hostname", ""), entry.get("ipMode", "VIP" if ip else "")
