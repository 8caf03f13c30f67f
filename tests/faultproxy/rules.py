"""Which request a fault meets; no I/O and no clock of its own."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Generic, TypeVar

_MUTATING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

EffectT = TypeVar("EffectT")


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What rules look at."""

    method: str
    path: str
    query: Mapping[str, str]
    user_agent: str

    @property
    def is_watch(self) -> bool:
        """A Kubernetes watch, whose answer is a stream of events, one JSON document a line."""
        return self.query.get("watch", "") in {"true", "1"}

    @property
    def is_mutating(self) -> bool:
        """It may change something."""
        return self.method in _MUTATING


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """
    A condition on requests; what is left out matches everything.

    `method` is a regular expression for the whole method (`PATCH|PUT`), `path` and `user_agent` are searched for anywhere,
    `query` names parameters that must have exactly these values, `watch` and `mutating` pick or exclude a kind.
    """

    method: str | None = None
    path: str | None = None
    query: Mapping[str, str] = dataclasses.field(default_factory=dict)
    user_agent: str | None = None
    watch: bool | None = None
    mutating: bool | None = None

    def matches(self, request: Request) -> bool:
        """Whether all of it holds for `request`."""
        return (
            (self.method is None or re.fullmatch(self.method, request.method) is not None)
            and (self.path is None or re.search(self.path, request.path) is not None)
            and all(request.query.get(name) == value for name, value in self.query.items())
            and (self.user_agent is None or re.search(self.user_agent, request.user_agent) is not None)
            and (self.watch is None or request.is_watch is self.watch)
            and (self.mutating is None or request.is_mutating is self.mutating)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Rule(Generic[EffectT]):
    """
    An effect on matching requests.

    It begins with the `nth` matching request after it was added (1 is the next), meets `times` requests (None: no end) and
    expires `seconds` after it was added (None: never).
    """

    effect: EffectT
    match: Match = dataclasses.field(default_factory=Match)
    nth: int = 1
    times: int | None = None
    seconds: float | None = None


class Armed(Generic[EffectT]):
    """A rule that was added: how many requests matched (`seen`) and how many it met (`hits`)."""

    def __init__(self, rule: Rule[EffectT], since: float) -> None:
        self.rule = rule
        self.seen = 0
        self.hits = 0
        self._since = since

    def meets(self, request: Request, now: float) -> bool:
        """Count `request` and say whether the effect is due; `now` in seconds on the clock that `since` was read from."""
        rule = self.rule
        if rule.seconds is not None and now - self._since >= rule.seconds:
            return False
        if not rule.match.matches(request):
            return False
        self.seen += 1
        if self.seen < rule.nth or (rule.times is not None and self.hits >= rule.times):
            return False
        self.hits += 1
        return True


class RuleBook(Generic[EffectT]):
    """The rules in force, in the order in which they were added."""

    def __init__(self) -> None:
        self._armed: list[Armed[EffectT]] = []

    def add(self, rule: Rule[EffectT], now: float) -> Armed[EffectT]:
        """Put a rule in force."""
        armed = Armed(rule, now)
        self._armed.append(armed)
        return armed

    def remove(self, armed: Armed[EffectT]) -> None:
        """Take a rule out of force; one that is out already is no error."""
        if armed in self._armed:
            self._armed.remove(armed)

    def clear(self) -> None:
        """Take every rule out of force."""
        self._armed.clear()

    def effects(self, request: Request, now: float) -> list[EffectT]:
        """What happens to this request; every rule counts it, also behind a rule that ends it."""
        return [armed.rule.effect for armed in self._armed if armed.meets(request, now)]
