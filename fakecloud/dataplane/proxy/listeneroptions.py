"""What a listener is told by its route."""

from dataclasses import dataclass

from fakecloud.dataplane.balancer import Choices, Endpoint
from fakecloud.models.listeners import ProxyProtocol
from fakecloud.state.networks import AddressSet


@dataclass(frozen=True)
class ListenerOptions:
    """Replaced as a whole when the route changes; connections that exist keep their target. Durations in seconds."""

    choices: Choices
    # Who may connect; None is everyone.
    sources: AddressSet | None = None
    proxy_protocol: ProxyProtocol = "none"
    idle_seconds: float | None = None
    # The targets whose connections may stay: those that neither drain nor are removed.
    staying: frozenset[Endpoint] = frozenset()
    drain_seconds: float | None = None
    connection_limit: int | None = None
