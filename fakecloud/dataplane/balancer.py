"""A listener's choice of targets, remembered between connections."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fakecloud.dataplane.algorithms import Candidate, by_load, by_source, eligible, from_turn, turns
from fakecloud.models.listeners import Algorithm

Endpoint = tuple[str, int]
_MOST_CLIENTS = 100_000


@dataclass(frozen=True)
class Choices:
    """Where new connections may go. `changes` is a number that grows whenever a target's health turns."""

    candidates: Callable[[], Sequence[Candidate[Endpoint]]]
    changes: Callable[[], int]
    algorithm: Algorithm = "round-robin"
    fail_open: bool = True
    affinity_seconds: float | None = None


class Balancer:
    """`clock` is monotonic, in seconds; `load` says how many connections a target has now."""

    def __init__(self, choices: Choices, clock: Callable[[], float], load: Callable[[Endpoint], int]) -> None:
        self._choices = choices
        self._clock = clock
        self._load = load
        self._turn = itertools.count()
        self._seen_changes = -1
        self._eligible: Sequence[Candidate[Endpoint]] = ()
        self._alive: frozenset[Endpoint] = frozenset()
        self._circle: Sequence[Endpoint] = ()
        # By client, the longest unused first: its target, and until when.
        self._clients: dict[str, tuple[Endpoint, float]] = {}

    def follow(self, choices: Choices) -> None:
        """Other targets or another algorithm; clients keep their target where it is still there."""
        self._choices = choices
        self._seen_changes = -1

    def targets(self, client: str) -> Iterable[Endpoint]:
        """The order in which to try targets for this client's address."""
        self._refresh()
        ordered = self._ordered(client)
        if self._choices.affinity_seconds is None:
            return ordered
        kept, until = self._clients.get(client, (None, 0.0))
        if kept is None or until < self._clock() or all(one.target != kept for one in self._eligible):
            return ordered
        return [kept, *(target for target in ordered if target != kept)]

    def chosen(self, client: str, target: Endpoint) -> None:
        """The client was connected to this target; with affinity it stays there."""
        if self._choices.affinity_seconds is not None:
            self._clients.pop(client, None)
            self._clients[client] = (target, self._clock() + self._choices.affinity_seconds)
            while len(self._clients) > _MOST_CLIENTS:
                del self._clients[next(iter(self._clients))]

    def lost(self, target: Endpoint) -> bool:
        """Whether it is no target any more, or taken for dead while there is another one to go to."""
        self._refresh()
        return target not in self._alive

    def _ordered(self, client: str) -> Iterable[Endpoint]:
        if self._choices.algorithm == "source-hash":
            return by_source(self._eligible, client)
        if self._choices.algorithm == "least-connections":
            return by_load(self._eligible, self._load, next(self._turn))
        return from_turn(self._circle, next(self._turn))

    def _refresh(self) -> None:
        changes = self._choices.changes()
        if changes != self._seen_changes:
            self._seen_changes = changes
            candidates = self._choices.candidates()
            self._eligible = eligible(candidates, fail_open=self._choices.fail_open)
            another = any(one.usable for one in self._eligible)
            self._alive = frozenset(one.target for one in candidates if one.usable or not another)
            self._circle = turns(self._eligible)
