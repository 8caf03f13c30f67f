"""The fixtures of the integration tests, and the time that one of them may take."""

from pathlib import Path

import pytest

from tests.harness.fixtures import api_proxy, cloud_proxy, control_plane, kube, kubeconfig, kubectl, namespace, stack

__all__ = ["api_proxy", "cloud_proxy", "control_plane", "kube", "kubeconfig", "kubectl", "namespace", "stack"]

# Seconds. A test's own deadlines come first and say what was waited for; this one ends what hangs, also on a slow machine.
LIMIT = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes start, and a machine may be busy: a minute, which is enough elsewhere, is none here."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))
