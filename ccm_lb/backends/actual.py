"""
What a cloud has beside what is wanted: one load balancer in words that can be compared, shown and kept.

A backend tells both sides in settings of its own choice; everything that compares them (drift, `ccm-lb explain`, a plan) is made from that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

__all__ = ["MISSING", "STATE", "ActualLoadBalancer", "Difference", "Settings", "Value", "as_json", "differences"]

Value: TypeAlias = str | int | float | bool | tuple[str, ...] | None

Settings: TypeAlias = Mapping[str, Value]
"""
By names that a user of the cloud understands: `sourceRanges`, `listeners[TCP/80].targetPort`.

What there may be several of is a tuple of names, whose order means nothing (`listeners: ("TCP/80", "UDP/53")`), and each one's own
settings stand beside it. No secret, and nothing that changes by itself such as counters or health.
"""

STATE = "state"
"""The setting for what the cloud says of the load balancer as a whole, where it can be in an error: what is desired is `active`."""


@dataclasses.dataclass(frozen=True)
class ActualLoadBalancer:
    """
    One load balancer as the cloud has it.

    `service` is the Service's `namespace/name` as the load balancer's tags say it, for people; empty where they do not. `addresses` are IPs
    and host names. `created_at` is RFC 3339. Not `settled`: the cloud still works on it, and its settings are not to be judged yet.
    """

    id: str
    owner_uid: str
    addresses: tuple[str, ...]
    settings: Settings
    service: str = ""
    created_at: str | None = None
    settled: bool = True


class Difference(NamedTuple):
    """One setting that is not as it is to be; prints as a user reads it."""

    setting: str
    desired: Value
    actual: Value

    def __str__(self) -> str:
        if self == MISSING:
            return "the load balancer is missing"
        if not isinstance(self.desired, tuple) or not isinstance(self.actual, tuple):
            return f"{self.setting} is {_word(self.actual)} instead of {_word(self.desired)}"
        without, beyond = set(self.desired) - set(self.actual), set(self.actual) - set(self.desired)
        said = [f"without {_word(tuple(sorted(without)))}"] if without else []
        said += [f"with {_word(tuple(sorted(beyond)))}, which is not wanted"] if beyond else []
        return f"{self.setting} is {' and '.join(said) or _word(self.actual)}"


MISSING = Difference("load balancer", "present", None)
"""The whole load balancer is not there."""


def differences(desired: Settings, actual: ActualLoadBalancer | None) -> tuple[Difference, ...]:
    """
    Each desired setting that the load balancer does not have; what it has beyond them is the cloud's own affair.

    Of a listener that is missing that alone is told, and none of its settings.
    """
    if actual is None:
        return (MISSING,)
    return tuple(
        Difference(name, value, actual.settings.get(name))
        for name, value in desired.items()
        if not _same(value, actual.settings.get(name)) and not _of_a_missing_one(name, actual.settings)
    )


def as_json(settings: Settings) -> dict[str, Any]:
    """The same with lists for tuples, sorted: equal settings are equal documents."""
    return {name: sorted(value) if isinstance(value, tuple) else value for name, value in settings.items()}


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and sorted(one) == sorted(other)
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _of_a_missing_one(name: str, settings: Settings) -> bool:
    several, bracket, rest = name.partition("[")
    there = settings.get(several)
    return bool(bracket) and isinstance(there, tuple) and rest.partition("]")[0] not in there


def _word(value: Value) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return "not set" if value is None else str(value)
