"""What is said of ports that a load balancer cannot serve: in the status, and by a condition (KEP-1435)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ccm_lb.objects import LoadBalancerIngress, PortStatus, Service

CONDITION = "LoadBalancerPortsError"
MIXED_PROTOCOL_NOT_SUPPORTED = "MixedProtocolNotSupported"  # upstream's, for TCP and UDP on one load balancer
PROTOCOL_NOT_SUPPORTED = "ProtocolNotSupported"
NO_NODE_PORT = "NoNodePort"

# Upstream's reason of the condition for its one error; for others the error is the reason.
_REASONS = {MIXED_PROTOCOL_NOT_SUPPORTED: "LoadBalancerMixedProtocolNotSupported"}
_ERROR = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def errors(ingress: Sequence[LoadBalancerIngress]) -> tuple[PortStatus, ...]:
    """The ports with an error, each once."""
    return tuple(dict.fromkeys(port for entry in ingress for port in entry.ports if port.error))


def completed(entry: LoadBalancerIngress, service: Service) -> LoadBalancerIngress:
    """
    The entry with every port of the Service in its `ports`, as KEP-1435 has it, if one has an error; as it is if none has.

    Raises:
        ValueError: an error is no reason that the API server takes.
    """
    known = {(port.protocol, port.port): port.error for port in entry.ports if port.error}
    if wrong := [error for error in known.values() if error and not _ERROR.fullmatch(error)]:
        raise ValueError(f"the error {wrong[0]!r} of a port is no CamelCase reason")
    if not known:
        return entry
    ports = tuple(
        PortStatus(port=one.port, protocol=one.protocol, error=known.get((one.protocol, one.port)))
        for one in service.spec.ports
    )
    return entry.model_copy(update={"ports": ports})


def words(ports: Sequence[PortStatus]) -> str:
    """The ports and what is wrong with each."""
    return ", ".join(f"{port.port}/{port.protocol} ({port.error})" for port in ports)


def condition(service: Service, ports: Sequence[PortStatus], now: str) -> Mapping[str, Any] | None:
    """
    The condition to write for `ports`, those with an error; None if what stands is right.

    `now` is RFC 3339; it becomes the transition time if the status changes. Without errors nothing is said, but that they ended.
    """
    standing = _standing(service)
    if not ports:
        if standing.get("status", "False") == "False":
            return None
        said = {"status": "False", "reason": "PortsServed", "message": "The load balancer serves all ports"}
    else:
        first = str(ports[0].error)
        message = f"The load balancer does not serve the ports {words(ports)}"
        said = {"status": "True", "reason": _REASONS.get(first, first), "message": message}
    if all(standing.get(name) == value for name, value in said.items()):
        return None
    since = standing.get("lastTransitionTime", now) if standing.get("status") == said["status"] else now
    return {"type": CONDITION, **said, "lastTransitionTime": since}


def has_condition(service: Service) -> bool:
    return bool(_standing(service))


def _standing(service: Service) -> Mapping[str, Any]:
    conditions = service.raw.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == CONDITION), {})
