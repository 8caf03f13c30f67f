"""The image, built once; without root or the tools every test is skipped and says so."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.fixtures import control_plane, kube, kubeconfig, namespace, stack
from tests.image import archive, builder
from tests.image.builder import Builder
from tests.image.pod import Image

__all__ = ["control_plane", "kube", "kubeconfig", "namespace", "stack"]

# Seconds. The first test builds: Debian's Python and the packages, which come over the network.
LIMIT = 900


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(LIMIT))


@pytest.fixture(scope="session")
def building(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    if os.geteuid() != 0:
        pytest.skip("an image is built by chroot, which needs root: sudo make test-image")
    if missing := builder.missing():
        pytest.skip(f"an image is built by programs that are missing: apt-get install {' '.join(missing)}")
    made = Builder(tmp_path_factory.mktemp("image"))
    made.build()
    archive.keep(made)  # for the cluster's tests
    made.build(target="fakecloud", name="localhost/fakecloud")
    yield made
    made.close()


@pytest.fixture(scope="session")
def image(building: Builder) -> Image:
    """The controller's."""
    return Image(building.mount(), building.describe())


@pytest.fixture(scope="session")
def fakecloud_image(building: Builder) -> Image:
    return Image(building.mount("localhost/fakecloud"), building.describe("localhost/fakecloud"))
