"""Which targets a new connection tries, in which order: pure."""

import hashlib
import heapq
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)
_LONGEST_CIRCLE = 20_000


@dataclass(frozen=True)
class Candidate(Generic[T]):
    """A target, its share, and whether health checks let it have traffic."""

    target: T
    weight: int
    usable: bool


def eligible(candidates: Iterable[Candidate[T]], *, fail_open: bool) -> Sequence[Candidate[T]]:
    """
    Those that may have new connections: the usable ones with a weight.

    When none is usable, all are (fail-open: a health check that is wrong must not take the service down), or none.
    """
    weighted = [candidate for candidate in candidates if candidate.weight > 0]
    usable = [candidate for candidate in weighted if candidate.usable]
    return usable or (weighted if fail_open else [])


def turns(candidates: Sequence[Candidate[T]], longest: int = _LONGEST_CIRCLE) -> Sequence[T]:
    """Who is next, for ever in a circle: each as often as its weight says, and spread out instead of in blocks."""
    if not candidates:
        return []
    total = sum(one.weight for one in candidates)
    divisor = max(math.gcd(*(one.weight for one in candidates)), total / longest)
    shares = [max(1, round(one.weight / divisor)) for one in candidates]
    # Each target's k-th turn of n lies at (k + 1/2) / n of the circle; equal weights simply take turns.
    due = [(0.5 / share, place) for place, share in enumerate(shares)]
    heapq.heapify(due)
    circle = []
    for _ in range(sum(shares)):
        at, place = due[0]
        circle.append(candidates[place].target)
        heapq.heapreplace(due, (at + 1 / shares[place], place))
    return circle


def from_turn(circle: Sequence[T], turn: int) -> Iterator[T]:
    """The one whose turn it is, then each other one once, for when that one can't be reached."""
    seen: set[T] = set()
    for step in range(len(circle)):
        target = circle[(turn + step) % len(circle)]
        if target not in seen:
            seen.add(target)
            yield target


def by_load(candidates: Sequence[Candidate[T]], load: Callable[[T], int], turn: int) -> Sequence[T]:
    """The least loaded for its weight first; among equals they take turns."""
    start = turn % len(candidates) if candidates else 0
    rotated = [*candidates[start:], *candidates[:start]]
    return [one.target for one in sorted(rotated, key=lambda one: load(one.target) / one.weight)]


def by_source(candidates: Sequence[Candidate[T]], source: str) -> Sequence[T]:
    """Always the same first for a source; when a target comes or goes, only its own sources move."""

    def score(candidate: Candidate[T]) -> float:
        digest = hashlib.blake2b(f"{source}|{candidate.target}".encode(), digest_size=8).digest()
        return -candidate.weight / math.log((int.from_bytes(digest) + 1) / (2**64 + 2))

    return [one.target for one in sorted(candidates, key=score, reverse=True)]
