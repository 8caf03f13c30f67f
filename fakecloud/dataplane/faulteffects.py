"""From faults to what they order for one listener or target."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from fakecloud.dataplane.delivery import Place
from fakecloud.faults.rules import Armed, Strike, Subject, fits
from fakecloud.models.faults import (
    STANDING,
    RefuseFault,
    SilentFault,
    TargetDownFault,
    TrafficEffect,
)
from fakecloud.state.routes import Destination


class PortState(Enum):
    """What a fault does to a listener's port."""

    OPEN = "open"
    REFUSING = "refusing"
    SILENT = "silent"


@dataclass(frozen=True)
class PortFault:
    """What faults order for one listener; `strike` counts a connection and says what happens to it."""

    state: PortState = PortState.OPEN
    strike: Callable[[], Sequence[TrafficEffect]] | None = None


NO_FAULT = PortFault()


def port_fault(faults: Sequence[Armed], strike: Strike, place: Place, now: float) -> PortFault:
    """What the faults in force order for a listener."""
    subject = Subject(load_balancer=place.load_balancer, address=place.address, port=place.port)
    effects = [fault.spec.effect for fault in faults if fault.active(now) and fits(fault.spec.match, subject)]
    if any(isinstance(effect, SilentFault) for effect in effects):
        return PortFault(PortState.SILENT)
    if any(isinstance(effect, RefuseFault) for effect in effects):
        return PortFault(PortState.REFUSING)
    if any(isinstance(effect, TrafficEffect) and not isinstance(effect, STANDING) for effect in effects):
        return PortFault(strike=functools.partial(_struck, strike, subject))
    return NO_FAULT


def targets_down(faults: Sequence[Armed], destinations: Sequence[Destination], now: float) -> frozenset[str]:
    """The addresses of targets that faults have taken down, named by their server's id or their address."""
    names = {
        fault.spec.match.target
        for fault in faults
        if fault.active(now) and isinstance(fault.spec.effect, TargetDownFault)
    }
    return frozenset(to.address for to in destinations if to.address is not None and {to.label, to.address} & names)


def next_expiry(faults: Sequence[Armed], now: float) -> float | None:
    """When a fault on traffic ends by itself next, in seconds from now."""
    ends = [fault.expires_at - now for fault in faults if isinstance(fault.spec.effect, TrafficEffect)]
    return min((end for end in ends if 0 < end < float("inf")), default=None)


def _struck(strike: Strike, subject: Subject) -> Sequence[TrafficEffect]:
    return [fault.spec.effect for fault in strike(subject) if isinstance(fault.spec.effect, TrafficEffect)]
