"""
What status.conditions say of a Service's load balancer, for those who wait for it or ask why it is not there.

The types and reasons are KEP-4631's and KEP-1435's where these have one. Entries are written by their type, so that nobody else's is
touched, and only beside something else that is written, or where what stands is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ccm_lb import portstatus
from ccm_lb.objects import PortStatus, Service

SERVING = "LoadBalancerServing"  # clients get through
PROVISIONING = "LoadBalancerProvisioning"  # it is being made
DEGRADED = "LoadBalancerDegraded"  # it serves, but not all that the Service asks for, or not as it asks for it now
PAUSED = "LoadBalancerPaused"  # nothing is written, because an annotation asks for that
DRIFTED = "LoadBalancerDrifted"  # the cloud has something else than what was written there
PORTS_ERROR = portstatus.CONDITION

TYPES = (SERVING, PROVISIONING, DEGRADED, PAUSED, DRIFTED, PORTS_ERROR)
# These always stand; the others from the first time on that they are true.
_ALWAYS: Sequence[str] = ()

Entry = Mapping[str, Any]
"""One of status.conditions, as JSON; a directive of a strategic-merge patch where it is to go."""


class Condition(NamedTuple):
    """What is to be said; `message` is a sentence for the user and the same each time for the same thing."""

    type: str
    status: bool
    reason: str
    message: str

    @property
    def is_trouble(self) -> bool:
        """Whether a user who sees nothing would be misled: all is well by default."""
        return self.status is not (self.type == SERVING)


def standing(service: Service) -> Mapping[str, Entry]:
    """Our conditions that the Service has, by type."""
    conditions = service.raw.get("status", {}).get("conditions") or ()
    return {one["type"]: one for one in conditions if one.get("type") in TYPES}


def said(service: Service) -> frozenset[Condition]:
    """The same, comparable: without times."""
    return frozenset(
        Condition(name, one.get("status") == "True", one.get("reason", ""), one.get("message", ""))
        for name, one in standing(service).items()
    )


def entries(
    service: Service, wanted: Iterable[Condition], now: str, *, written_anyway: bool = False
) -> tuple[Entry, ...]:
    """
    What to write so that the Service says `wanted`; nothing of a type that is not among it.

    Nothing where what stands is right. That all is well is no reason for a write of its own where nothing stands yet; it is said where
    the status is `written_anyway`. `now`, RFC 3339, becomes the transition time of those whose status changes.
    """
    before = standing(service)
    differing = [one for one in wanted if not _stands(service, before.get(one.type), one)]
    if not written_anyway and not any(one.is_trouble or one.type in before for one in differing):
        return ()
    return tuple(
        _entry(service, one, before.get(one.type), now)
        for one in differing
        if one.is_trouble or one.type in before or one.type in _ALWAYS
    )


def restoring(service: Service, wanted: Iterable[Condition], now: str) -> tuple[Entry, ...]:
    """What to write so that the Service says just `wanted` again, which was changed by another."""
    kept = frozenset(wanted)
    before = standing(service)
    extra = [name for name in before if name not in {one.type for one in kept}]
    lost = [one for one in kept if not _stands(service, before.get(one.type), one)]
    return (*(_entry(service, one, before.get(one.type), now) for one in sorted(lost)), *removals(extra))


def removals(types: Iterable[str]) -> tuple[Entry, ...]:
    """What to write so that conditions of these types are gone."""
    return tuple({"type": one, "$patch": "delete"} for one in types)


# ---- what is said


def provisioning() -> Sequence[Condition]:
    """Of a Service whose load balancer is about to be made."""
    message = "The load balancer is being made"
    return Condition(SERVING, False, "Provisioning", message), Condition(PROVISIONING, True, "Provisioning", message)


def serving(lacks: Sequence[tuple[str, str]], ports: Sequence[PortStatus]) -> Sequence[Condition]:
    """Of a Service that is served; `lacks` are a reason and a message each, `ports` those with an error."""
    return (
        Condition(SERVING, True, "Serving", "The load balancer serves the Service"),
        Condition(PROVISIONING, False, "Provisioned", "The load balancer is made"),
        degraded(lacks),
        not_served(ports),
        Condition(PAUSED, False, "NotPaused", "The load balancer follows the Service"),
    )


def failing(reason: str, message: str, *, served: bool, final: bool) -> Sequence[Condition]:
    """Of a Service that could not be synced; `served`: what there was before serves on. `final`: until the Service changes."""
    if served:
        return (degraded([(reason, message)]),)
    provisioning_too = Condition(PROVISIONING, not final, reason, message)
    return Condition(SERVING, False, reason, message), provisioning_too


def degraded(lacks: Sequence[tuple[str, str]]) -> Condition:
    if not lacks:
        return Condition(DEGRADED, False, "AsRequested", "The load balancer is as the Service asks")
    reasons = dict.fromkeys(reason for reason, _ in lacks)
    message = "; ".join(dict.fromkeys(message for _, message in lacks))
    return Condition(DEGRADED, True, "Multiple" if len(reasons) > 1 else next(iter(reasons)), message)


def not_served(ports: Sequence[PortStatus]) -> Condition:
    """KEP-1435's; `ports` are those with an error."""
    if not ports:
        return Condition(PORTS_ERROR, False, "PortsServed", "The load balancer serves all ports")
    message = f"The load balancer does not serve the ports {portstatus.words(ports)}"
    return Condition(PORTS_ERROR, True, portstatus.reason(ports[0]), message)


def paused(service: Service, annotation: str) -> Condition:
    """Of a Service that is to be left alone."""
    rest = f"annotation {annotation} is true: nothing is written to the load balancer, nor to this Service but this condition"
    if service.deleting:
        return Condition(PAUSED, True, "DeletionWaits", f"{rest}; the deletion waits until the annotation is gone")
    return Condition(PAUSED, True, "Annotation", rest)


def drifted(differences: str) -> Condition:
    """Of a load balancer that is left as somebody made it in the cloud; no `differences`: it is as it was written."""
    if not differences:
        return Condition(DRIFTED, False, "AsWritten", "The cloud has what was written there")
    return Condition(
        DRIFTED, True, "ChangedInCloud", f"The load balancer was changed in the cloud and is left so: {differences}"
    )


def _stands(service: Service, entry: Entry | None, wanted: Condition) -> bool:
    now = _fields(service, wanted)
    return entry is not None and all(entry.get(name) == value for name, value in now.items())


def _entry(service: Service, wanted: Condition, before: Entry | None, now: str) -> Entry:
    fields = _fields(service, wanted)
    same = before is not None and before.get("status") == fields["status"]
    since = before.get("lastTransitionTime", now) if before is not None and same else now
    return {**fields, "lastTransitionTime": since}


def _fields(service: Service, one: Condition) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "type": one.type,
        "status": str(one.status),
        "reason": one.reason,
        "message": one.message,
    }
    # Up to Kubernetes 1.37 Services have no generation, and the server drops what is said of it.
    if service.metadata.generation:
        fields["observedGeneration"] = service.metadata.generation
    return fields
