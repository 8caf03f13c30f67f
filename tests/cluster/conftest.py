"""
One cluster for the whole session; where it can't be, every test is skipped and says why.

All tests of this folder are in one event loop, because what a module deploys is asked by all its tests.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(LIMIT))
        if isinstance(item, pytest.Function) and asyncio.iscoroutinefunction(item.function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With kube-proxy, CoreDNS, the image on both nodes, and pods that say who they are."""
    if reason := machines.unsupported():
        pytest.skip(reason)
    missing = {package for program, package in _PROGRAMS.items() if shutil.which(program) is None}
    if not CNI_PLUGINS.is_dir():
        missing.add("containernetworking-plugins")
    if missing := missing | set(builder.missing()):
        pytest.skip(f"a cluster needs programs that are missing: apt-get install {' '.join(sorted(missing))}")
    machines.sweep()
    binaries = built([*recipes.CONTROL_PLANE, *recipes.NODE, "helm"])
    image = archive.ensure(tmp_path_factory.mktemp("image") / "store")
    made = Cluster(binaries, kube_version(), tmp_path_factory.mktemp("cluster"))
    try:
        made.start([image])
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
