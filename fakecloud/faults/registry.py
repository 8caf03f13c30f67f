"""The faults that are in force."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fakecloud import errors
from fakecloud.faults.buckets import Bucket
from fakecloud.faults.rules import Armed, Strike, Subject, meet
from fakecloud.models.faults import (
    FaultSpec,
    FaultView,
    NamedScenario,
    RateLimitFault,
    Scenario,
)

_MOST = 1000


@dataclass(frozen=True)
class Chance:
    """The monotonic clock in seconds, and even numbers in [0, 1)."""

    clock: Callable[[], float]
    draw: Callable[[], float]


class Follower(Protocol):
    """Who has to know at once when the faults change."""

    def follow(self, faults: Sequence[Armed], strike: Strike) -> None: ...


class Faults:
    """Added, counted, listed, removed. They are not stored: a restart is a cloud that works."""

    def __init__(self, scenarios: Mapping[str, Scenario], chance: Chance, followers: Sequence[Follower]) -> None:
        self.chance = chance
        self._scenarios = scenarios
        self._followers = followers
        self._armed: tuple[Armed, ...] = ()
        self._buckets: dict[str, Bucket] = {}
        self._numbers = itertools.count(1)

    def add(self, specs: Sequence[FaultSpec]) -> Sequence[FaultView]:
        """Add faults; one with an id that exists takes its place and counts anew. Raises ProblemError (409)."""
        now = self.chance.clock()
        added = [self._armed_from(spec, now) for spec in specs]
        replaced = {fault.id for fault in added}
        kept = [fault for fault in self._armed if fault.id not in replaced]
        if len(kept) + len(added) > _MOST:
            raise errors.conflict("limit-reached", f"there can be {_MOST} faults at a time; remove some first")
        self._set((*kept, *added))
        return [fault.view(now) for fault in added]

    def apply(self, name: str) -> Sequence[FaultView]:
        """Add a scenario's faults. Raises ProblemError (404)."""
        scenario = self._scenarios.get(name)
        if scenario is None:
            raise errors.not_found("scenario", name, "/v1/scenarios")
        return self.add(
            [
                spec if spec.id is not None else spec.model_copy(update={"id": f"{name}-{number}"})
                for number, spec in enumerate(scenario.faults, 1)
            ]
        )

    def find(self, fault_id: str) -> FaultView:
        """Raises ProblemError (404)."""
        for view in self.views():
            if view.id == fault_id:
                return view
        raise errors.not_found("fault", fault_id, "/v1/faults")

    def remove(self, fault_id: str) -> None:
        """Raises ProblemError (404)."""
        self.find(fault_id)
        self._set(tuple(fault for fault in self._armed if fault.id != fault_id))

    def clear(self) -> None:
        self._set(())

    def views(self) -> Sequence[FaultView]:
        now = self.chance.clock()
        return [fault.view(now) for fault in self._armed]

    def scenarios(self) -> Sequence[NamedScenario]:
        return [
            NamedScenario(name=name, description=scenario.description, faults=scenario.faults)
            for name, scenario in self._scenarios.items()
        ]

    def holds(self, fault_id: str) -> bool:
        """Whether it is still in force."""
        now = self.chance.clock()
        return any(fault.id == fault_id and now < fault.expires_at for fault in self._armed)

    def strike(self, subject: Subject) -> Sequence[Armed]:
        """Count a call or a connection; the faults that strike it."""
        if not self._armed:
            return ()
        self._armed, striking = meet(self._armed, subject, self.chance.clock(), self.chance.draw)
        return striking

    def needs_owner(self) -> bool:
        """Whether a fault asks whose call it is: only then is that looked up."""
        return any(fault.spec.match.owner or fault.spec.match.cluster for fault in self._armed)

    def take(self, fault_id: str, effect: RateLimitFault) -> tuple[Bucket, bool]:
        """One request out of a fault's bucket: the bucket, and whether the request may pass."""
        now = self.chance.clock()
        before = self._buckets.get(fault_id) or Bucket.full(effect.burst, effect.requests_per_second, now)
        self._buckets[fault_id], passes = before.taken(now)
        return self._buckets[fault_id], passes

    def _armed_from(self, spec: FaultSpec, now: float) -> Armed:
        fault_id = spec.id or self._free_id()
        self._buckets.pop(fault_id, None)
        return Armed(fault_id, spec) if spec.for_seconds is None else Armed(fault_id, spec, now + spec.for_seconds)

    def _free_id(self) -> str:
        taken = {fault.id for fault in self._armed}
        return next(name for number in self._numbers if (name := f"fault-{number}") not in taken)

    def _set(self, armed: tuple[Armed, ...]) -> None:
        self._armed = armed
        for follower in self._followers:
            follower.follow(armed, self.strike)
