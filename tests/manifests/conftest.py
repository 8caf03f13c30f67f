"""kubectl and Helm, and an API server that enforces Pod Security."""

import os
from pathlib import Path

import pytest

from tests.controlplane import build, recipes
from tests.harness.fixtures import control_plane, kube, kubeconfig, kubectl, namespace, stack

__all__ = ["control_plane", "kube", "kubeconfig", "kubectl", "namespace", "stack"]

# Seconds: processes start, and a machine may be busy.
LIMIT = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session")
def helm() -> Path:
    version = recipes.checked_version(os.environ.get("KUBE_VERSION") or recipes.default_kube_version())
    found = build.find_binaries(["helm"], version)
    if not found:
        pytest.fail("helm is not built: make controlplane", pytrace=False)
    return found["helm"]
