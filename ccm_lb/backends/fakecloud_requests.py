"""What the backend for fakecloud asks for, and what the answers mean; no I/O."""

import dataclasses
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ccm_lb import portstatus
from ccm_lb.annotations import ADOPT, KEEP, HealthCheckProtocol, Options, ProxyProtocol
from ccm_lb.backends import actual
from ccm_lb.backends.actual import ActualLoadBalancer, Value
from ccm_lb.backends.base import Response
from ccm_lb.errors import CCMError, PortsError, RetryAfterError
from ccm_lb.objects import Node, PortStatus, Service, ServicePort

log = logging.getLogger(__name__)

SERVICE = "kubernetes.io/service"  # a tag: the Service's namespace and name, for people
REPAIRED = "ccm-lb.dev/repaired-after"  # a tag: the action whose error the load balancer was repaired after
PENDING_PAUSE = 2.0  # seconds until a load balancer is looked at again whose change the cloud still works on
PROVIDER_PREFIX = "fakecloud://"  # of a node's providerID; the rest is the server's id
KUBE_PROXY_PORT, KUBE_PROXY_PATH = (
    10256,
    "/healthz",
)  # where kube-proxy says whether its node should get new connections
_AFFINITY_SECONDS = 10_800  # where the Service names none; Kubernetes' own default


@dataclasses.dataclass(frozen=True)
class NodeAccess:
    """
    How the cloud reaches nodes.

    `by_node_port`: not where packets keep their destination. `ask_kube_proxy`: the provider's setting for Services with
    externalTrafficPolicy Cluster.
    """

    by_node_port: bool
    ask_kube_proxy: bool


def desired(
    service: Service,
    nodes: Sequence[Node],
    options: Options,
    proxy_protocol: ProxyProtocol,
    access: NodeAccess,
) -> dict[str, Any]:
    """
    The load balancer that `service` asks for, in the API's words.

    Raises:
        PortsError: no port can be served, since none has a node port.
    """
    without = without_node_port(service) if access.by_node_port else []
    if len(without) == len(service.spec.ports):
        said = portstatus.words(without)
        raise PortsError(f"the ports {said} have no nodePort: set allocateLoadBalancerNodePorts to true", without)
    left_out = {(one.protocol, one.port) for one in without}
    return {
        "families": list(service.spec.ip_families) or ["IPv4"],
        "listeners": [
            {
                "name": port.name or None,
                "protocol": port.protocol,
                "port": port.port,
                "targetPort": port.node_port or port.port,
                "proxyProtocol": options.proxy_protocol_on(port, proxy_protocol).value,
            }
            for port in service.spec.ports
            if (port.protocol, port.port) not in left_out
        ],
        "targets": list(targets_of(service, nodes)),
        "healthCheck": health_check(service, options, access),
        "sourceRanges": list(options.source_ranges),
        "sessionAffinity": _session_affinity(service),
        "tags": {SERVICE: str(service.key)},
    }


def asked_for(options: Options) -> dict[str, Any]:
    """What only a new load balancer can get."""
    asked = {"addresses": list(options.addresses), "addressPools": list(options.address_pools)}
    return {name: value for name, value in asked.items() if value}


def other_pools(asked: Sequence[str]) -> str:
    return (
        f"an address of {', '.join(asked)} was asked for after the load balancer was made, which keeps the one that it has: delete the "
        "Service and make it again, or take the wish back"
    )


def adopted(name: str) -> str:
    return f"The load balancer {name}, which was nobody's, is this Service's now, and goes with it unless annotation {KEEP} is true"


def not_adopted(name: str) -> str:
    return f'annotation {ADOPT} is "{name}", which cannot be taken over'


def not_there(name: str) -> str:
    return f"{not_adopted(name)}: the cloud has no such load balancer; name one by its id, or remove the annotation, and a new one is made"


def has_one(name: str, present: str) -> str:
    return (
        f"{not_adopted(name)}: the Service has the load balancer {present} already, which serves on as it is; remove the annotation, or "
        f"delete the Service and make it again"
    )


def listener_name(port: ServicePort | PortStatus) -> str:
    """What `described` calls the listener of a port."""
    return f"{port.protocol}/{port.port}"


def without(wanted: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """The load balancer without the listeners, and the servers, of these names."""
    listeners = [one for one in wanted["listeners"] if f"{one['protocol']}/{one['port']}" not in left_out]
    targets = [one for one in wanted["targets"] if one.get("server") not in left_out]
    return {**wanted, "listeners": listeners, "targets": targets}


def without_node_port(service: Service) -> list[PortStatus]:
    return [
        PortStatus(port=port.port, protocol=port.protocol, error=portstatus.NO_NODE_PORT)
        for port in service.spec.ports
        if not port.node_port
    ]


def _session_affinity(service: Service) -> dict[str, Any] | None:
    """Behind a proxy the nodes see one client, the load balancer: it is the only one that can tell clients apart."""
    if service.spec.session_affinity != "ClientIP":
        return None
    client_ip = (service.spec.session_affinity_config or {}).get("clientIP") or {}
    return {"type": "ClientIP", "timeoutSeconds": client_ip.get("timeoutSeconds") or _AFFINITY_SECONDS}


def health_check(service: Service, options: Options, access: NodeAccess) -> dict[str, Any]:
    """
    TCP on the node ports unless asked otherwise; never by appProtocol, since what speaks HTTP need not answer / with 200.

    Where a port is served without a node port, nothing on the node can be asked but kube-proxy, whatever the annotation says.
    """
    ask_kube_proxy, protocol = access.ask_kube_proxy, options.health_check_protocol
    if not access.by_node_port and without_node_port(service):
        ask_kube_proxy, protocol = True, None
    if protocol is HealthCheckProtocol.TCP:
        return {"protocol": "tcp"}
    if service.spec.external_traffic_policy == "Local" and service.spec.health_check_node_port:
        # kube-proxy answers there with 503 on nodes without an endpoint of this Service.
        return {"protocol": "http", "port": service.spec.health_check_node_port, "path": KUBE_PROXY_PATH}
    if ask_kube_proxy and protocol is None:
        return {"protocol": "http", "port": KUBE_PROXY_PORT, "path": KUBE_PROXY_PATH}
    return {"protocol": "http", "path": "/"} if protocol else {"protocol": "tcp"}


def targets_of(service: Service, nodes: Sequence[Node]) -> Iterable[dict[str, str]]:
    for node in nodes:
        if node.spec.provider_id.startswith(PROVIDER_PREFIX):
            yield {"server": node.spec.provider_id.removeprefix(PROVIDER_PREFIX)}
            continue
        for family in service.spec.ip_families or ("IPv4",):
            if address := node.internal_ip(family):
                yield {"address": address}
            else:
                log.info("a node has no address of a family", extra={"node": node.name, "family": family})


def described(load_balancer: Mapping[str, Any]) -> dict[str, Value]:
    """What is asked for, or what the cloud shows, in words that can be compared: see `ccm_lb.backends.actual`."""
    found: dict[str, Value] = {}
    for name in load_balancer.keys() & _DESCRIBED.keys():
        found |= _DESCRIBED[name](load_balancer[name])
    return found


def changed_fields(existing: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `wanted` that the load balancer has not; what the cloud filled in by itself is its own affair."""
    shown = described(existing)
    return {
        name: value
        for name, value in wanted.items()
        if actual.differences(described({name: value}), ActualLoadBalancer("", "", (), shown))
    }


def actual_load_balancer(shown: Mapping[str, Any]) -> ActualLoadBalancer:
    """A load balancer as the cloud shows it."""
    settled = shown["state"] not in ("pending", "deleting")
    state = {actual.STATE: shown["state"]} if settled else {}
    return ActualLoadBalancer(
        id=shown["id"],
        owner_uid=(shown["owner"] or {}).get("uid", ""),
        addresses=tuple(one["address"] for one in shown["addresses"]),
        settings={**described(shown), **state},
        service=shown["tags"].get(SERVICE, ""),
        created_at=shown["createdAt"],
        settled=settled,
    )


def _listeners(listeners: Sequence[Mapping[str, Any]]) -> dict[str, Value]:
    by_name = {f"{one['protocol']}/{one['port']}": one for one in listeners}
    found: dict[str, Value] = {"listeners": tuple(by_name)}
    for name, one in by_name.items():
        found[f"listeners[{name}].targetPort"] = one["targetPort"]
        found[f"listeners[{name}].name"] = one.get("name")
        found[f"listeners[{name}].proxyProtocol"] = one.get("proxyProtocol", "none")
        found[f"listeners[{name}].healthCheck"] = "its own" if one.get("healthCheck") else None
    return found


def _targets(targets: Sequence[Mapping[str, Any]]) -> dict[str, Value]:
    """A target's own port, weight and drain, none of which is ever asked for, stand in its name."""
    return {"targets": tuple(_target(one) for one in targets)}


def _target(target: Mapping[str, Any]) -> str:
    beyond = " ".join(f"{name}={target[name]}" for name in ("port", "weight", "drain") if target.get(name) is not None)
    name = str(target.get("server") or target["address"])
    return f"{name} ({beyond})" if beyond else name


def _health_check(check: Mapping[str, Any] | None) -> dict[str, Value]:
    """How often and how long is for those who run the cloud to choose."""
    return {f"healthCheck.{name}": (check or {}).get(name) for name in ("protocol", "port", "path")}


def _affinity(affinity: Mapping[str, Any] | None) -> dict[str, Value]:
    return {f"sessionAffinity.{name}": (affinity or {}).get(name) for name in ("type", "timeoutSeconds")}


_DESCRIBED: Mapping[str, Callable[[Any], dict[str, Value]]] = {
    "name": lambda name: {"name": name},
    "families": lambda families: {"families": ", ".join(families)},  # the first one is the primary one
    "listeners": _listeners,
    "targets": _targets,
    "healthCheck": _health_check,
    "sourceRanges": lambda ranges: {"sourceRanges": tuple(ranges)},
    "sessionAffinity": _affinity,
    "tags": lambda tags: {f"tags[{name}]": value for name, value in tags.items()},
}


def refused_listeners(response: Response, body: Mapping[str, Any]) -> list[PortStatus]:
    """The listeners whose protocol the cloud does not have; none if it complains of something else, too."""
    named = [re.match(r"listeners\[(\d+)\]\.protocol$", one["field"]) for one in response.json().get("errors", [])]
    listeners = [body["listeners"][int(one[1])] for one in named if one is not None and "listeners" in body]
    error = portstatus.PROTOCOL_NOT_SUPPORTED
    found = [PortStatus(port=one["port"], protocol=one["protocol"], error=error) for one in listeners]
    return found if len(found) == len(named) else []


def unknown_servers(response: Response) -> frozenset[str]:
    errors = response.json().get("errors", [])
    unknown = [
        error for error in errors if error["field"].startswith("targets[") and error["field"].endswith("].server")
    ]
    return frozenset(str(error.get("value")) for error in unknown) if len(unknown) == len(errors) else frozenset()


def check_carried_out(load_balancer: Mapping[str, Any]) -> None:
    """Raise RetryAfterError or CCMError while the cloud has not done what it accepted: its address may lead nowhere."""
    name, state = load_balancer["id"], load_balancer["state"]
    if state in ("pending", "deleting"):
        raise RetryAfterError(f"the cloud still works on the load balancer {name}", PENDING_PAUSE)
    if state == "error":
        raise CCMError(f"the load balancer {name} ended in an error")


def complaint(response: Response) -> str:
    """What the cloud says in its problem document, or else the bare status."""
    try:
        problem = response.json()
        details = "; ".join(f"{one['field']}: {one['message']}" for one in problem.get("errors", []))
        return details or str(problem.get("detail") or problem["title"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"status {response.status}"
