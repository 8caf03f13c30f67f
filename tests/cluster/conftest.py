"""One cluster for the whole session."""

from pathlib import Path

import pytest

from tests.cluster.fixtures import archives, cloud, cluster, in_one_loop, kube, machine_will_do

__all__ = ["archives", "cloud", "cluster", "kube", "machine_will_do"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_one_loop(items, Path(__file__).parent)
