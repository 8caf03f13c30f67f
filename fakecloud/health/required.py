"""Which probes a route needs."""

from fakecloud.health.monitor import Monitor
from fakecloud.health.probes import Probe
from fakecloud.models.listeners import Listener
from fakecloud.state.routes import Destination, Route


def probe_of(route: Route, to: Destination, listener: Listener) -> Probe | None:
    """None where a probe would tell nothing."""
    check = route.health_check_of(listener)
    if to.address is None or (listener.protocol == "UDP" and check.port is None):
        return None
    return Probe(to.address, check.port or to.port or listener.target_port, check)


def probes_of(route: Route) -> set[Probe]:
    """All of a route; equal ones are wanted once."""
    return {
        probe
        for to in route.destinations
        for listener in route.listeners
        if (probe := probe_of(route, to, listener)) is not None
    }


def verdict_on(monitor: Monitor, route: Route, to: Destination, listener: Listener) -> tuple[bool | None, str]:
    """Whether a target is healthy on a listener's port, and why."""
    if to.address is None:
        return False, to.reason
    probe = probe_of(route, to, listener)
    if probe is None:
        return None, "not probed: a UDP port does not answer a probe; healthCheck.port names one that does"
    verdict = monitor.watched(probe).verdict
    return verdict.healthy, verdict.reason
