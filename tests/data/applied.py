"""The clusters of this folder, made on a genuine API server and removed from it again."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from tests.controlplane.kube import Kube, KubeError

Json = dict[str, Any]

_RESOURCES = {
    "DaemonSet": "apps/v1/daemonsets",
    "ConfigMap": "configmaps",
    "Pod": "pods",
    "Node": "nodes",
    "Service": "services",
}


def resource(obj: Json) -> str:
    return _RESOURCES[obj["kind"]]


def complete(obj: Json) -> Json:
    """With what the API server asks of a DaemonSet and the files leave out."""
    if obj["kind"] != "DaemonSet":
        return obj
    labels = {"app": obj["metadata"]["name"]}
    template = {"metadata": {"labels": labels}, "spec": obj["spec"]["template"]["spec"]}
    return {**obj, "spec": {"selector": {"matchLabels": labels}, "template": template}}


@contextlib.asynccontextmanager
async def made(kube: Kube, objects: Sequence[Json]) -> AsyncIterator[None]:
    """These objects while the context lasts; statuses too, as controllers and kubelets would have written them."""
    made_ones: list[Json] = []
    try:
        for one in objects:
            namespace = one["metadata"].get("namespace")
            await _namespace(kube, namespace)
            await kube.create(resource(one), complete(one), namespace)
            made_ones.append(one)
            if "status" in one and one["kind"] != "Node":
                await _status(kube, one)
        yield
    finally:
        for one in reversed(made_ones):
            await kube.delete(resource(one), one["metadata"]["name"], one["metadata"].get("namespace"), grace=0)


async def _namespace(kube: Kube, name: str | None) -> None:
    if name is None or await kube.find("namespaces", name) is not None:
        return
    await kube.create("namespaces", {"metadata": {"name": name}})


async def _status(kube: Kube, obj: Json) -> None:
    counts = {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}
    status = {**counts, **obj["status"]} if obj["kind"] == "DaemonSet" else obj["status"]
    metadata = obj["metadata"]
    with contextlib.suppress(KubeError) if obj["kind"] == "Pod" else contextlib.nullcontext():
        await kube.patch(
            resource(obj), metadata["name"], {"status": status}, metadata.get("namespace"), subresource="status"
        )
