"""Which nodes' kube-proxy is too old for ipMode, from what Nodes and Pods say of its version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ccm_lb.objects import Node

SINCE = (1, 29)
"""The first kube-proxy that has ipMode (KEP-1860; on by default from 1.30)."""

UNKNOWN = "unknown"


def versions(nodes: Iterable[Node], pods: Iterable[Mapping[str, Any]] = ()) -> dict[str, str]:
    """
    kube-proxy's version by node name: of the image in its pod, or else status.nodeInfo.kubeProxyVersion, or else UNKNOWN.

    The pod goes before, because the Node's field is empty in newer clusters and a guess of the kubelet's in older ones.
    """
    images = dict(_images(pods))
    return {node.name: images.get(node.name) or _of_node(node) or UNKNOWN for node in nodes}


def ignoring(by_node: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes that ignore ipMode, sorted; a version that is not known says nothing."""
    return tuple(sorted(name for name, version in by_node.items() if _is_older(version)))


def _images(pods: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str]]:
    for pod in pods:
        spec = pod.get("spec", {})
        for container in spec.get("containers", ()):
            name, _, tag = container.get("image", "").partition("@")[0].rpartition(":")
            if name.rpartition("/")[2] == "kube-proxy" and _numbers(tag):
                yield spec.get("nodeName", ""), tag


def _of_node(node: Node) -> str:
    version: str = node.raw.get("status", {}).get("nodeInfo", {}).get("kubeProxyVersion", "")
    return version


def _is_older(version: str) -> bool:
    return (numbers := _numbers(version)) is not None and numbers < SINCE


def _numbers(version: str) -> tuple[int, int] | None:
    parts = version.removeprefix("v").split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit() else None
