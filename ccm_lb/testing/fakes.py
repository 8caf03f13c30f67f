"""Stand-ins for what the controller and a backend are handed: the Kubernetes API, events, time, the Lease."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ccm_lb.errors import ConflictError, InvalidError, NotFoundError
from ccm_lb.objects import Key, Service
from ccm_lb.testing.builders import Json, Tweak, merged
from ccm_lb.testing.script import Script

__all__ = [
    "DELETE_FROM_FINALIZERS",
    "FakeClock",
    "FakeServices",
    "OpenFence",
    "RecordedEvent",
    "RecordedEvents",
    "Watcher",
]

DELETE_FROM_FINALIZERS = "$deleteFromPrimitiveList/finalizers"

Watcher = Callable[[str, str, Json], None]
"""Called with "services" or "nodes", the type of the event (ADDED, MODIFIED, DELETED), and the object."""


class OpenFence:
    """A Lease that is held, until `held` says otherwise."""

    def __init__(self, fencing_token: str | None = None) -> None:
        self.held = True
        self.fencing_token = fencing_token

    def holds(self) -> bool:
        return self.held


class FakeClock:
    """A clock that nothing but sleeping and `advance` moves; `slept` lists the seconds of each sleep."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclasses.dataclass(frozen=True)
class RecordedEvent:
    """One Kubernetes event; prints as `kubectl` shows it."""

    type: str
    reason: str
    message: str
    uid: str

    def __str__(self) -> str:
        return f"{self.type} {self.reason} {self.message}"


class RecordedEvents:
    """An event recorder that keeps them."""

    def __init__(self) -> None:
        self.all: list[RecordedEvent] = []

    def event(self, service: Service, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        self.all.append(RecordedEvent(type, reason, message, service.uid))

    def lines(self) -> list[str]:
        """Type, reason and message of each, in order."""
        return [str(event) for event in self.all]

    def reasons(self) -> list[str]:
        return [event.reason for event in self.all]


class FakeServices:
    """
    The part of the API server that the controller reads and writes, in memory.

    It keeps the rules that the controller leans on: one rising resourceVersion for all objects; a patch that names another UID is
    refused, as is a new finalizer on an object under deletion; an object under deletion goes with its last finalizer; an ingress IP gets
    ipMode VIP when it has none, and no value that is not in `ip_modes`; a Service of another type has no status.loadBalancer.
    `managedFields` records who set which finalizer, and who changed the status last.

    `create`, `edit` and `delete` are the user's side. `script` takes outcomes by method name; `patches` are the bodies that were sent,
    `dry_runs` those that were only tried.
    """

    def __init__(self, field_manager: str = "ccm-lb") -> None:
        self._field_manager = field_manager
        self._objects: dict[tuple[str, Key], Json] = {}
        self._version = 100
        self._watchers: list[Watcher] = []
        self.script = Script()
        self.patches: list[Mapping[str, Any]] = []
        self.dry_runs: list[Mapping[str, Any]] = []
        self.ip_modes: frozenset[str] = frozenset({"VIP", "Proxy"})
        self.has_ip_mode = True  # False: a server before 1.29, which drops the field
        self.gets: list[Key | str] = []

    def watch(self, watcher: Watcher) -> None:
        """From now on `watcher` is told of every change, at once."""
        self._watchers.append(watcher)

    # ---- the user's side

    def create(self, obj: Tweak, *, manager: str = "kubectl") -> Json:
        """Make a Service or Node; one that exists already is a ConflictError."""
        resource, key = _place(obj)
        if (resource, key) in self._objects:
            raise ConflictError(f"{resource} {key} already exists", status=409, reason="AlreadyExists")
        return self._store("ADDED", merged(obj), manager)

    def edit(self, obj: Tweak, *tweaks: Tweak, manager: str = "kubectl") -> Json:
        """Merge `tweaks` over the object that has the kind and name of `obj`; the last finalizer gone ends a deletion."""
        return self._store("MODIFIED", merged(self._get(*_place(obj)), *tweaks), manager)

    def delete(self, obj: Tweak) -> None:
        """Ask for the deletion: it waits for finalizers, as usual."""
        current = self._get(*_place(obj))
        self._store("MODIFIED", merged(current, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), "kubectl")

    def object(self, key: Key, resource: str = "services") -> Json | None:
        """The object as it stands, None if there is none."""
        found = self._objects.get((resource, key))
        return None if found is None else merged(found)

    # ---- the controller's side

    async def get_service(self, key: Key) -> Mapping[str, Any]:
        self.gets.append(key)
        async with self.script.play("get_service"):
            return merged(self._get("services", key))

    async def get_node(self, name: str) -> Mapping[str, Any]:
        self.gets.append(name)
        async with self.script.play("get_node"):
            return merged(self._get("nodes", Key("", name)))

    async def list_service_metadata(self, *, newest: bool = False) -> list[Mapping[str, Any]]:  # noqa: ARG002
        async with self.script.play("list_service_metadata"):
            return self._metadata("services")

    async def list_node_metadata(self) -> list[Mapping[str, Any]]:
        async with self.script.play("list_node_metadata"):
            return self._metadata("nodes")

    async def patch_service_status(
        self, key: Key, patch: Mapping[str, Any], *, dry_run: bool = False
    ) -> Mapping[str, Any]:
        # Through JSON, so that nothing goes in which would not go over the wire.
        patch = json.loads(json.dumps(patch))
        (self.dry_runs if dry_run else self.patches).append(patch)
        async with self.script.play("patch_service_status"):
            current = self._get("services", key)
            changed = _patched(current, patch)
            self._store_modes(changed)
            if changed == current or dry_run:
                _apply_defaults(changed, ip_mode=self.has_ip_mode)
                return merged(changed)
            return self._store("MODIFIED", changed, self._field_manager)

    def _store_modes(self, service: Json) -> None:
        for entry in service["status"].get("loadBalancer", {}).get("ingress") or ():
            if not self.has_ip_mode:
                entry.pop("ipMode", None)
            elif entry.get("ipMode", "VIP") not in self.ip_modes:
                message = f'status.loadBalancer.ingress[0].ipMode: Unsupported value: "{entry["ipMode"]}"'
                raise InvalidError(message, status=422, reason="Invalid")

    # ---- the store

    def _get(self, resource: str, key: Key) -> Json:
        try:
            return self._objects[resource, key]
        except KeyError:
            raise NotFoundError(f"{resource} {key} not found", status=404, reason="NotFound") from None

    def _metadata(self, resource: str) -> list[Mapping[str, Any]]:
        return [merged(obj["metadata"]) for (kind, _), obj in self._objects.items() if kind == resource]

    def _store(self, event: str, obj: Json, manager: str) -> Json:
        resource, key = _place(obj)
        before = self._objects.get((resource, key))
        if resource == "services":
            _apply_defaults(obj, ip_mode=self.has_ip_mode)
            _note_manager(before, obj, manager)
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        if "deletionTimestamp" in obj["metadata"] and not obj["metadata"].get("finalizers"):
            self._objects.pop((resource, key), None)
            event = "DELETED"
        else:
            self._objects[resource, key] = obj
        for watcher in self._watchers:
            watcher(resource, event, merged(obj))
        return merged(obj)


def _place(obj: Mapping[str, Any]) -> tuple[str, Key]:
    metadata = obj["metadata"]
    return obj["kind"].lower() + "s", Key(metadata.get("namespace", ""), metadata["name"])


def _patched(current: Json, patch: Mapping[str, Any]) -> Json:
    """What a strategic-merge patch of the status subresource makes of a Service: finalizers and status, nothing else."""
    metadata = patch.get("metadata", {})
    if metadata.get("uid", current["metadata"]["uid"]) != current["metadata"]["uid"]:
        raise InvalidError("metadata.uid: Invalid value: field is immutable", status=422, reason="Invalid")
    before = current["metadata"].get("finalizers", [])
    added = [name for name in metadata.get("finalizers", []) if name not in before]
    if added and "deletionTimestamp" in current["metadata"]:
        message = "no new finalizers can be added if the object is being deleted"
        raise InvalidError(f"metadata.finalizers: Forbidden: {message}", status=422, reason="Invalid")
    removed = metadata.get(DELETE_FROM_FINALIZERS, [])
    # A strategic merge puts what the patch names before what is there.
    finalizers = [name for name in [*added, *before] if name not in removed]
    status = dict(patch.get("status", {}))
    if "conditions" in status:
        status["conditions"] = _merged_conditions(current.get("status", {}).get("conditions", []), status["conditions"])
    changed = merged(current, {"status": status})
    changed["metadata"]["finalizers"] = finalizers
    if not finalizers:
        del changed["metadata"]["finalizers"]
    for entry in changed["status"].get("loadBalancer", {}).get("ingress", []):
        if "ipMode" in entry and "ip" not in entry:
            raise InvalidError("status.loadBalancer.ingress[0].ipMode: Forbidden", status=422, reason="Invalid")
    return changed


def _merged_conditions(before: list[Json], patch: list[Json]) -> list[Json]:
    """By type, as the API server does; `$patch: delete` removes."""
    merging = {one["type"]: one for one in before} | {one["type"]: one for one in patch}
    return [one for one in merging.values() if one.get("$patch") != "delete"]


def _apply_defaults(service: Json, *, ip_mode: bool) -> None:
    status = service.setdefault("status", {})
    if service["spec"].get("type") != "LoadBalancer":
        status["loadBalancer"] = {}
    for entry in status.setdefault("loadBalancer", {}).get("ingress", []):
        if "ip" in entry and ip_mode:
            entry.setdefault("ipMode", "VIP")


def _note_manager(before: Json | None, after: Json, manager: str) -> None:
    """Write into managedFields which finalizers `manager` added; those that are gone lose their owner."""
    old = set(before["metadata"].get("finalizers", [])) if before else set()
    new = set(after["metadata"].get("finalizers", []))
    owned: dict[str, set[str]] = {}
    for entry in after["metadata"].get("managedFields", []):
        fields = entry["fieldsV1"].get("f:metadata", {}).get("f:finalizers", {})
        owned[entry["manager"]] = {name.removeprefix("v:").strip('"') for name in fields} & new
    owned[manager] = owned.get(manager, set()) | (new - old)
    publishers = [one["manager"] for one in after["metadata"].get("managedFields", []) if "f:status" in one["fieldsV1"]]
    if before is not None and before.get("status", {}).get("loadBalancer") != after["status"].get("loadBalancer"):
        publishers = [manager] if after["status"].get("loadBalancer", {}).get("ingress") else []
    after["metadata"]["managedFields"] = [
        {"manager": who, "fieldsV1": {"f:metadata": {"f:finalizers": {f'v:"{name}"': {} for name in sorted(names)}}}}
        for who, names in owned.items()
        if names
    ]
    after["metadata"]["managedFields"] += [
        {"manager": who, "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}}} for who in publishers
    ]
