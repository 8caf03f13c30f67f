"""What tests in a cluster stand on. A conftest.py imports the fixtures that its tests use, and gives the tests one event loop."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from tests.cluster import machines, workloads
from tests.cluster.cloud import RoutersCloud
from tests.cluster.cluster import CNI_PLUGINS, Cluster
from tests.controlplane import recipes
from tests.controlplane.kube import Kube
from tests.harness.fixtures import built, kube_version
from tests.image import archive, builder

# Seconds. The first test starts the cluster, and may build the image.
LIMIT = 600
_PROGRAMS = {"containerd": "containerd", "ctr": "containerd", "runc": "runc", "nft": "nftables", "ip": "iproute2"}


def in_one_loop(items: Sequence[pytest.Item], folder: Path, limit: float = LIMIT) -> None:
    """The tests in `folder`: what a module deploys is asked by all its tests."""
    for item in items:
        if folder not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(limit))
        if isinstance(item, pytest.Function) and asyncio.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def machine_will_do() -> None:
    """Where a cluster can't be, the test is skipped and says why."""
    if reason := machines.unsupported():
        pytest.skip(reason)
    missing = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if not CNI_PLUGINS.is_dir():
        missing.add("containernetworking-plugins")
    if missing := missing | set(builder.missing()):
        pytest.skip(f"a cluster needs programs that are missing: apt-get install {' '.join(sorted(missing))}")
    machines.sweep()


@pytest.fixture(scope="session")
def archives(machine_will_do: None, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The images that both nodes get, besides those of the cluster itself."""
    return [archive.ensure(tmp_path_factory.mktemp("image") / "store")]


@pytest.fixture(scope="session")
def cluster(machine_will_do: None, archives: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With kube-proxy, CoreDNS, the image on both nodes, and pods that say who they are."""
    binaries = built([*recipes.CONTROL_PLANE, *recipes.NODE])
    made = Cluster(binaries, kube_version(), tmp_path_factory.mktemp("cluster"))
    try:
        made.start(archives)
        workloads.apply(made)
        yield made
    finally:
        made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cloud(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RoutersCloud]:
    """A cloud outside the cluster."""
    async with RoutersCloud(cluster.router, tmp_path_factory.mktemp("cloud")) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def kube(cluster: Cluster) -> AsyncIterator[Kube]:
    """A cluster admin's client."""
    async with cluster.kube() as client:
        yield client
