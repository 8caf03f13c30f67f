"""A cluster whose nodes have agnhost as well."""

from pathlib import Path

import pytest

from tests.cluster.fixtures import cluster, in_one_loop, machine_will_do
from tests.e2e import agnhost
from tests.harness.fixtures import built
from tests.image import archive

__all__ = ["cluster", "machine_will_do"]

# Seconds for all tests in one delivery, the rolling updates of ten minutes too.
LIMIT = 3000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    in_one_loop(items, Path(__file__).parent, LIMIT)


@pytest.fixture(scope="session")
def archives(machine_will_do: None, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("image")
    return [
        archive.ensure(folder / "store"),
        agnhost.packed(folder / "agnhost.tar", built(["agnhost"])["agnhost"]),
    ]
