"""What is said of ports that a load balancer cannot serve: in the status, and by a condition (KEP-1435)."""

from __future__ import annotations

import re
from collections.abc import Sequence

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


def reason(port: PortStatus) -> str:
    """The reason of the condition that names this port first."""
    error = str(port.error)
    return _REASONS.get(error, error)
