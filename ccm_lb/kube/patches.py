"""
What is written to a Service, as strategic-merge patches on its `status` subresource.

Each names the UID that it is meant for, so that a Service created again under the same name is refused instead of changed. Lists
are touched by directive, never by index, so that no foreign finalizer is lost and nothing has to be read before.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from ccm_lb.objects import CLEANUP_FINALIZER, IPMode, LoadBalancerIngress, LoadBalancerStatus

Patch = Mapping[str, Any]
Conditions = Sequence[Mapping[str, Any]]
"""Entries of status.conditions, or directives that remove one."""


def finalizer_patch(uid: str, conditions: Conditions = ()) -> Patch:
    """Add our finalizer beside whatever is there, and set `conditions` in the same write."""
    return _patch({"uid": uid, "finalizers": [CLEANUP_FINALIZER]}, _changes(None, conditions))


def status_patch(uid: str, status: LoadBalancerStatus | None, conditions: Conditions = ()) -> Patch:
    """Publish `status` unless None and set `conditions`; everything else of the Service's status stays as it is."""
    return {"metadata": {"uid": uid}, "status": _changes(status, conditions)}


def restore_patch(
    uid: str, status: LoadBalancerStatus | None, conditions: Conditions = (), *, finalizer: bool
) -> Patch:
    """Publish `status` unless None, set `conditions` and add our finalizer if it is missing, in one write."""
    metadata = {"uid": uid, "finalizers": [CLEANUP_FINALIZER]} if finalizer else {"uid": uid}
    return _patch(metadata, _changes(status, conditions))


def release_patch(uid: str, *, clear_status: bool, conditions: Conditions = ()) -> Patch:
    """Take our finalizer off and, in the same write, the addresses that are no longer served and what `conditions` removes."""
    metadata = {"uid": uid, "$deleteFromPrimitiveList/finalizers": [CLEANUP_FINALIZER]}
    return _patch(metadata, _changes(LoadBalancerStatus() if clear_status else None, conditions))


def _patch(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> Patch:
    return {"metadata": metadata, "status": status} if status else {"metadata": metadata}


def _changes(status: LoadBalancerStatus | None, conditions: Conditions) -> Mapping[str, Any]:
    changes: dict[str, Any] = {}
    if status is not None:
        changes["loadBalancer"] = {"ingress": _ingress_json(status)}
    if conditions:
        changes["conditions"] = [dict(one) for one in conditions]  # merged by type
    return changes


def _ingress_json(status: LoadBalancerStatus) -> list[dict[str, Any]] | None:
    entries = [one.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True) for one in status.ingress]
    return entries or None  # an empty list and an absent one are told apart by the API server, not by anybody else


def checked(status: LoadBalancerStatus) -> LoadBalancerStatus:
    """
    A backend's answer in the form of `comparable`, fit to be published.

    Raises:
        ValueError: an entry has neither IP nor hostname, or its IP is none.
    """
    for entry in status.ingress:
        if entry.ip:
            ipaddress.ip_address(entry.ip)
        elif not entry.hostname:
            raise ValueError("an ingress entry has neither ip nor hostname")
    return comparable(status)


def comparable(status: LoadBalancerStatus) -> LoadBalancerStatus:
    """
    The status as the API server stores it, so that comparing is comparing; takes whatever stands in a Service.

    An IP without ipMode is a VIP (the API server fills that in), an entry without IP has no ipMode (the API server would refuse it),
    an IP is written in its canonical form.
    """
    return LoadBalancerStatus(ingress=tuple(_comparable_entry(one) for one in status.ingress))


def _comparable_entry(entry: LoadBalancerIngress) -> LoadBalancerIngress:
    if not entry.ip:
        return entry.model_copy(update={"ip": None, "ip_mode": None})
    address = entry.ip
    with contextlib.suppress(ValueError):
        address = str(ipaddress.ip_address(address))
    return entry.model_copy(update={"ip": address, "ip_mode": entry.ip_mode or IPMode.VIP})


def without_modes(status: LoadBalancerStatus) -> LoadBalancerStatus:
    """The status as a server stores it that does not have ipMode, in the form of `comparable`."""
    return LoadBalancerStatus(
        ingress=tuple(one.model_copy(update={"ip_mode": IPMode.VIP if one.ip else None}) for one in status.ingress)
    )


def other_modes(status: LoadBalancerStatus) -> Mapping[str, IPMode | str]:
    """The modes that are not VIP, by IP: those that only a server with ipMode can store."""
    return {one.ip: one.ip_mode for one in status.ingress if one.ip and one.ip_mode and one.ip_mode is not IPMode.VIP}


def stores_modes(sent: LoadBalancerStatus, stored: LoadBalancerStatus) -> bool | None:
    """Whether the server that answered `stored` to `sent` has ipMode; None if that does not show."""
    answered = {one.ip: one.ip_mode for one in stored.ingress if one.ip}
    shown = [answered[ip] == mode for ip, mode in other_modes(sent).items() if ip in answered]
    return all(shown) if shown else None


def writers(managed_fields: Sequence[Mapping[str, Any]], ours: str, *path: str) -> tuple[str, ...]:
    """
    The field managers but `ours` that the API server's record names for the field at `path`, or anything, the latest first.

    Who only takes a field away has no entry for it.
    """
    found = sorted(managed_fields, key=lambda entry: str(entry.get("time", "")), reverse=True)
    names = [str(entry.get("manager", "")) for entry in found if _has(entry.get("fieldsV1", {}), path)]
    return tuple(dict.fromkeys(name for name in names if name and name != ours))


def _has(fields: Mapping[str, Any], path: Sequence[str]) -> bool:
    for name in path:
        if name not in fields:
            return False
        fields = fields[name]
    return True


def finalizer_set_by(managed_fields: list[dict[str, Any]], manager: str) -> bool:
    """Whether the API server's record says that the field manager `manager` put our finalizer on."""
    field = f'v:"{CLEANUP_FINALIZER}"'
    return any(
        entry.get("manager") == manager
        and field in entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:finalizers", {})
        for entry in managed_fields
    )
