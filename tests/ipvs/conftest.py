"""One virtual machine for all tests of this folder; without root they are skipped and say so."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane.server import ControlPlane
from tests.harness.fixtures import kubeconfig
from tests.ipvs import initramfs, packages
from tests.ipvs.site import Site, running
from tests.packets.conftest import binaries, control_plane, root

__all__ = ["binaries", "control_plane", "kubeconfig", "root"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def kernel_and_initramfs(
    root: None, binaries: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    if missing := packages.missing():
        pytest.skip(f"the virtual machine needs programs that are missing: apt-get install {' '.join(missing)}")
    if not os.access("/dev/net/tun", os.W_OK):
        pytest.skip("the virtual machine needs /dev/net/tun, which is missing or not for us")
    try:
        unpacked = packages.unpacked()
    except packages.PackageError as error:
        pytest.skip(f"the virtual machine has no kernel: {error}")
    target = tmp_path_factory.mktemp("guest") / "initramfs"
    return initramfs.build(unpacked, binaries["kube-proxy"], target), target


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def site(
    control_plane: ControlPlane,
    kubeconfig: Path,
    kernel_and_initramfs: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Site]:
    async with running(control_plane, *kernel_and_initramfs, kubeconfig, tmp_path_factory.mktemp("ipvs")) as made:
        yield made
