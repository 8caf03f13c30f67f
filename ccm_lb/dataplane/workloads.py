"""Kubernetes workloads, read for what runs in them: containers, command lines, mounted ConfigMaps, how far a roll-out is."""

from __future__ import annotations

import dataclasses
import posixpath
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ccm_lb.dataplane import versions
from ccm_lb.dataplane.versions import Version

Object = Mapping[str, Any]

KUBE_PROXY = "kube-proxy"


@dataclasses.dataclass(frozen=True)
class Program:
    """One container of a workload or pod."""

    command: tuple[str, ...]  # with its arguments; a shell's script is taken apart
    image: str
    env: Mapping[str, str]
    mounts: tuple[Object, ...]

    @property
    def name(self) -> str:
        """What is run, without its folder; empty where the image decides."""
        return posixpath.basename(self.command[0]) if self.command else ""

    @property
    def image_name(self) -> str:
        return self.image.partition("@")[0].rpartition("/")[2].partition(":")[0]

    @property
    def version(self) -> Version | None:
        return versions.of_image(self.image)


def name(obj: Object) -> str:
    return str(obj.get("metadata", {}).get("name", ""))


def namespace(obj: Object) -> str:
    return str(obj.get("metadata", {}).get("namespace", ""))


def title(kind: str, obj: Object) -> str:
    """`DaemonSet kube-system/kube-proxy`."""
    return f"{kind} {namespace(obj)}/{name(obj)}"


def pod_spec(obj: Object) -> Object:
    """Of a workload's template, or of a pod."""
    spec: Object = obj.get("spec") or {}
    template: Object = (spec.get("template") or {}).get("spec") or {}
    return template or spec


def programs(obj: Object) -> Iterator[Program]:
    for container in pod_spec(obj).get("containers") or ():
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        yield Program(
            tuple(_of_shell([str(word) for word in words])),
            str(container.get("image") or ""),
            {str(one["name"]): str(one.get("value") or "") for one in container.get("env") or ()},
            tuple(container.get("volumeMounts") or ()),
        )


def kube_proxy(obj: Object) -> Program | None:
    """The container that is kube-proxy, by its command, else by its image."""
    found = list(programs(obj))
    by_command = [one for one in found if one.name == KUBE_PROXY]
    own = ("", KUBE_PROXY, f"{KUBE_PROXY}.exe")
    by_image = [one for one in found if one.image_name.startswith(KUBE_PROXY) and one.name in own]
    return next(iter([*by_command, *by_image]), None)


def misshapen(obj: Object) -> str:
    """
    The place in a workload that came from a file where something else stands than Kubernetes would have there; empty for none.

    The other functions here take the API server's word for it.
    """
    metadata, spec = obj.get("metadata"), obj.get("spec")
    if not isinstance(metadata, dict):
        return "metadata"
    template = spec.get("template") if isinstance(spec, dict) else None
    pod = template.get("spec") if isinstance(template, dict) else None
    if not isinstance(pod, dict):
        return "spec.template.spec"
    if not isinstance(pod.get("nodeSelector") or {}, dict):
        return "spec.template.spec.nodeSelector"
    containers = pod.get("containers")
    if not isinstance(containers, list) or not all(map(_is_container, containers)):
        return "spec.template.spec.containers"
    return ""


def _is_container(one: Any) -> bool:
    if not isinstance(one, dict):
        return False
    lists = {key: one.get(key) or [] for key in ("command", "args", "env", "volumeMounts")}
    if not all(isinstance(value, list) for value in lists.values()):
        return False
    named = all(isinstance(value, dict) and "name" in value for value in lists["env"])
    return named and all(isinstance(value, dict) for value in lists["volumeMounts"])


def _of_shell(words: list[str]) -> list[str]:
    if len(words) < 3 or posixpath.basename(words[0]) not in ("sh", "bash") or not words[1].endswith("c"):
        return words
    try:
        script = shlex.split(words[2])
    except ValueError:
        return words
    return script[1:] if script[:1] == ["exec"] else script


def for_windows(obj: Object) -> bool:
    selector = pod_spec(obj).get("nodeSelector") or {}
    return "windows" in (selector.get("kubernetes.io/os"), selector.get("beta.kubernetes.io/os"))


def scheduled(daemonset: Object) -> int | None:
    """On how many nodes it is to run; None before the DaemonSet controller said so."""
    status = daemonset.get("status") or {}
    return int(status["desiredNumberScheduled"]) if status.get("observedGeneration") else None


def rolling(daemonset: Object) -> bool:
    """Whether some nodes still run an older template."""
    wanted = scheduled(daemonset)
    if wanted is None:
        return False
    status = daemonset["status"]
    behind = int(status["observedGeneration"]) < int(daemonset.get("metadata", {}).get("generation", 0))
    return behind or int(status.get("updatedNumberScheduled", 0)) < wanted


def mounted_file(obj: Object, program: Program, path: str) -> tuple[str, str] | None:
    """The ConfigMap (its name) and the key behind a file of a container; None where it comes from somewhere else."""
    best: Object | None = None
    for mount in program.mounts:
        place = str(mount.get("mountPath") or "").rstrip("/")
        if (path == place or path.startswith(f"{place}/")) and (best is None or len(place) > len(best["mountPath"])):
            best = {**mount, "mountPath": place}
    if best is None:
        return None
    volume: Object = next(
        (one for one in pod_spec(obj).get("volumes") or () if one.get("name") == best.get("name")), {}
    )
    source = volume.get("configMap") or {}
    if not source.get("name"):
        return None
    inside = str(best.get("subPath") or posixpath.relpath(path, best["mountPath"]))
    items = {one.get("path"): one.get("key") for one in source.get("items") or ()}
    return str(source["name"]), str(items.get(inside, inside))
