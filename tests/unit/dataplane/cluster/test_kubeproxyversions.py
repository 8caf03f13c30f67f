"""Which nodes' kube-proxy knows ipMode."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_lb.dataplane.cluster import kubeproxyversions
from ccm_lb.testing import builders


def node(name: str, version: str) -> Any:
    return builders.node(name, {"status": {"nodeInfo": {"kubeProxyVersion": version}}})


def pod(node_name: str, image: str) -> dict[str, Any]:
    return {"spec": {"nodeName": node_name, "containers": [{"image": "example.com/other:v1.0.0"}, {"image": image}]}}


def test_the_pod_goes_before_the_node_and_the_rest_is_unknown() -> None:
    nodes = [node("n1", "v1.34.0"), node("n2", "v1.28.3"), node("n3", "")]
    pods = [
        pod("n1", "registry.k8s.io/kube-proxy:v1.27.0"),
        pod("n3", "registry.example.com:5000/kube-proxy@sha256:00"),
        {"spec": {}},
    ]
    assert kubeproxyversions.versions(nodes, pods) == {"n1": "v1.27.0", "n2": "v1.28.3", "n3": "unknown"}


@pytest.mark.parametrize(
    ("version", "ignores"),
    [
        ("v1.28.15", True),
        ("1.9.0", True),
        ("v1.29.0", False),
        ("v1.100.0", False),
        ("v2.0.0", False),
        ("unknown", False),
        ("v1.x.1", False),
        ("v1", False),
        ("", False),
    ],
)
def test_a_kube_proxy_before_1_29_ignores_ip_mode(version: str, ignores: bool) -> None:  # noqa: FBT001
    assert bool(kubeproxyversions.ignoring({"n1": version})) is ignores


def test_the_nodes_are_named_in_order() -> None:
    assert kubeproxyversions.ignoring({"n2": "v1.28.0", "n1": "v1.27.0", "n3": "v1.34.0"}) == ("n1", "n2")
