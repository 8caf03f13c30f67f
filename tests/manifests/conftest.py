"""kubectl and Helm, and an API server that enforces Pod Security."""

from pathlib import Path

import pytest

from tests.harness.fixtures import built, control_plane, kube, kubeconfig, kubectl, namespace, stack

__all__ = ["control_plane", "kube", "kubeconfig", "kubectl", "namespace", "stack"]

# Seconds: processes start, and a machine may be busy.
LIMIT = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session")
def helm() -> Path:
    return built(["helm"])["helm"]
