"""Which faults a call meets, as plain values: counting a call returns new faults."""

import fnmatch
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fakecloud.models.faults import STANDING, FaultSpec, FaultView, LatencyFault, Match, TrafficEffect


@dataclass(frozen=True)
class Subject:
    """The call (or connection, without a method and a path) that faults are matched against."""

    method: str = ""
    path: str = ""
    owner: str | None = None
    cluster: str | None = None
    load_balancer: str | None = None
    address: str | None = None
    port: int | None = None


@dataclass(frozen=True)
class Armed:
    """A fault in force, and what it has met so far. Times are seconds on the monotonic clock."""

    id: str
    spec: FaultSpec
    expires_at: float = math.inf
    matched: int = 0
    applied: int = 0

    def active(self, now: float) -> bool:
        return now < self.expires_at and (self.spec.times is None or self.applied < self.spec.times)

    def view(self, now: float) -> FaultView:
        return FaultView(
            id=self.id,
            match=self.spec.match,
            effect=self.spec.effect,
            times=self.spec.times,
            for_seconds=self.spec.for_seconds,
            active=self.active(now),
            matched=self.matched,
            applied=self.applied,
        )


# Counts a call or connection, and says which faults strike it.
Strike = Callable[[Subject], Sequence[Armed]]


def meet(
    faults: Sequence[Armed], subject: Subject, now: float, draw: Callable[[], float]
) -> tuple[tuple[Armed, ...], tuple[Armed, ...]]:
    """All faults with this call counted, and those that strike it, in their order. `draw` gives numbers in [0, 1)."""
    after, striking = [], []
    for fault in faults:
        if not fault.active(now) or not _concerns(fault.spec, subject):
            after.append(fault)
            continue
        counted = replace(fault, matched=fault.matched + 1)
        if _chosen(counted, draw):
            counted = replace(counted, applied=counted.applied + 1)
            striking.append(counted)
        after.append(counted)
    return tuple(after), tuple(striking)


def seconds_of(effect: LatencyFault, draw: Callable[[], float]) -> float:
    """How long this one call waits; never less than nothing."""
    if effect.distribution == "uniform":
        return effect.seconds + draw() * ((effect.to_seconds or 0.0) - effect.seconds)
    if effect.distribution == "exponential":
        return -effect.seconds * math.log(1.0 - draw())
    if effect.distribution == "normal":
        # Box and Muller's way from two even numbers to a normal one.
        normal = math.sqrt(-2.0 * math.log(1.0 - draw())) * math.cos(2.0 * math.pi * draw())
        return max(0.0, effect.seconds + (effect.deviation_seconds or 0.0) * normal)
    return effect.seconds


def _concerns(spec: FaultSpec, subject: Subject) -> bool:
    if isinstance(spec.effect, STANDING):
        return False
    return isinstance(spec.effect, TrafficEffect) == (subject.method == "") and fits(spec.match, subject)


def fits(match: Match, subject: Subject) -> bool:
    """Whether the fields that the match names agree; counting and chance apart."""
    return (
        (not match.methods or subject.method in match.methods)
        and (match.path is None or fnmatch.fnmatchcase(subject.path, match.path))
        and match.owner in (None, subject.owner)
        and match.cluster in (None, subject.cluster)
        and match.load_balancer in (None, subject.load_balancer)
        and match.address in (None, subject.address)
        and match.port in (None, subject.port)
    )


def _chosen(fault: Armed, draw: Callable[[], float]) -> bool:
    match = fault.spec.match
    if match.nth is not None and fault.matched != match.nth:
        return False
    return match.probability is None or draw() < match.probability
