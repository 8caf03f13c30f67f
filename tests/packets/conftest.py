"""
The lab, once for each proxy mode. It needs root: without it every test is skipped and says so.

All tests of this folder are in one event loop, because the lab's relays and pods live in it.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane import build, recipes
from tests.controlplane.server import ControlPlane
from tests.harness.fixtures import kubeconfig
from tests.packets import kubeproxy, netns, topology
from tests.packets.lab import Lab, running

__all__ = ["kubeconfig"]

MODES = ("nftables", "iptables")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if (
            here in item.path.parents
            and isinstance(item, pytest.Function)
            and asyncio.iscoroutinefunction(item.function)
        ):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        if here in item.path.parents:
            # The first test of a mode also starts its lab, of twenty processes and hosts.
            item.add_marker(pytest.mark.timeout(300))
            # A lab belongs to one worker: all tests of a mode go there.
            callspec = getattr(item, "callspec", None)
            if callspec is not None and "lab" in callspec.params:
                item.add_marker(pytest.mark.xdist_group(callspec.params["lab"]))


@pytest.fixture(scope="session")
def root() -> None:
    """Skip where there is none; sweep what killed runs left behind."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root: sudo make test-packets")
    missing = [package for tool, package in (("ip", "iproute2"), ("nft", "nftables")) if shutil.which(tool) is None]
    if missing:
        pytest.fail(f"programs are missing: apt-get install {' '.join(missing)}", pytrace=False)
    netns.sweep()


@pytest.fixture(scope="session")
def binaries(root: None) -> dict[str, Path]:
    """The genuine ones; minutes of building do not belong inside a test's time limit."""
    names = (*recipes.CONTROL_PLANE, "kube-proxy")
    version = recipes.default_kube_version()
    found = build.find_binaries(names, version)
    if len(found) < len(names):
        pytest.fail("binaries are missing: make controlplane", pytrace=False)
    return found


@pytest.fixture(scope="session")
def control_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    networks = ",".join(topology.SERVICE_NETWORKS)
    plane = ControlPlane(binaries, apiserver_flags=[f"--service-cluster-ip-range={networks}"])
    asyncio.run(plane.start())
    yield plane
    asyncio.run(plane.stop())


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=MODES)
async def lab(
    request: pytest.FixtureRequest,
    binaries: dict[str, Path],
    control_plane: ControlPlane,
    kubeconfig: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Lab]:
    """Both nodes, both clouds and everybody else, with kube-proxy in this mode."""
    mode = request.param
    if package := kubeproxy.missing_tool(mode):
        pytest.skip(f"kube-proxy's {mode} mode needs a program that is missing: apt-get install {package}")
    directory = tmp_path_factory.mktemp(mode)
    async with running(mode, control_plane, binaries["kube-proxy"], kubeconfig, directory) as made:
        yield made
