"""What is told of a running load balancer."""

from collections.abc import Iterable, Mapping
from typing import Protocol as Interface

from fakecloud.dataplane.balancer import Endpoint
from fakecloud.dataplane.counters import Counters
from fakecloud.health.monitor import Monitor
from fakecloud.health.required import verdict_on
from fakecloud.models.listeners import Protocol
from fakecloud.models.views import ListenerStatus, TargetStatus
from fakecloud.state.routes import Route


class Counted(Interface):
    """A listener that runs."""

    def counters(self) -> Counters: ...


class Counting(Interface):
    """Whoever carries traffic, or reads what the kernel has counted of it."""

    def counters_by_target(self) -> Mapping[Endpoint, Counters]: ...


def target_statuses(
    route: Route,
    running: Iterable[Counting],
    monitor: Monitor,
) -> tuple[TargetStatus, ...]:
    """Each target once for each of its ports, in the order of the targets."""
    counted: dict[Endpoint, Counters] = {}
    for opened in running:
        for endpoint, counters in opened.counters_by_target().items():
            counted.setdefault(endpoint, Counters()).add(counters)
    found = []
    for to in route.destinations:
        # Of several listeners with one target port, the first one's health check is shown.
        by_port = {to.port or listener.target_port: listener for listener in reversed(route.listeners)}
        for port, listener in sorted(by_port.items(), key=lambda item: route.listeners.index(item[1])):
            healthy, reason = verdict_on(monitor, route, to, listener)
            counters = counted.get((to.address or "", port), Counters())
            found.append(
                TargetStatus(
                    target=to.label,
                    address=to.address,
                    port=port,
                    healthy=healthy,
                    reason=reason,
                    connections=counters.connections,
                    active_connections=counters.active,
                    bytes_in=counters.bytes_in,
                    bytes_out=counters.bytes_out,
                )
            )
    return tuple(found)


def listener_status(spot: tuple[Protocol, str, int], listener: Counted | None, error: str | None) -> ListenerStatus:
    protocol, address, port = spot
    counters = listener.counters() if listener is not None else Counters()
    return ListenerStatus(
        protocol=protocol,
        port=port,
        address=address,
        open=listener is not None,
        error=error,
        connections=counters.connections,
        active_connections=counters.active,
        bytes_in=counters.bytes_in,
        bytes_out=counters.bytes_out,
    )
