"""
What every integration test stands on: one control plane for the whole session, and a namespace of its own for each test.

The control plane is processes, files and ports; nothing in it belongs to an event loop, so a session-wide fixture can hold it.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.controlplane import build, recipes
from tests.controlplane.kube import Kube, KubeError
from tests.controlplane.server import ControlPlane


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    version = recipes.checked_version(os.environ.get("KUBE_VERSION") or recipes.default_kube_version())
    binaries = build.find_binaries(recipes.CONTROL_PLANE, version)
    missing = sorted(set(recipes.CONTROL_PLANE) - set(binaries))
    if missing:
        # Minutes of building do not belong inside one test's time limit.
        pytest.fail(
            f"{', '.join(missing)} {version} not built: python -m tests.controlplane build --version {version}",
            pytrace=False,
        )
    plane = ControlPlane(binaries)
    asyncio.run(plane.start())
    yield plane
    asyncio.run(plane.stop())


@pytest.fixture
async def kube(control_plane: ControlPlane) -> AsyncIterator[Kube]:
    """A cluster admin's client; a server that an earlier test left dead or frozen is brought back first."""
    await _revive(control_plane)
    async with control_plane.kube() as client:
        yield client


@pytest.fixture
async def namespace(control_plane: ControlPlane, kube: Kube) -> AsyncIterator[str]:
    """
    A new namespace. At the end its Services, all Nodes and the controller's Lease are removed, whatever finalizers they carry,
    so that the next test's controller finds nothing of this one. (No namespace controller runs, so the namespace stays.)
    """
    name = f"test-{secrets.token_hex(4)}"
    await kube.create("namespaces", {"metadata": {"name": name}})
    yield name
    await _revive(control_plane)
    for service in await kube.list("services", name):
        await _remove(kube, "services", service["metadata"]["name"], name)
    for node in await kube.list("nodes"):
        await _remove(kube, "nodes", node["metadata"]["name"], None)
    await kube.delete("coordination.k8s.io/v1/leases", "cloud-controller-manager", "kube-system")


async def _remove(kube: Kube, resource: str, name: str, namespace: str | None) -> None:
    try:
        await kube.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
    except KubeError as error:
        if error.status != 404:
            raise
    await kube.delete(resource, name, namespace)


async def _revive(plane: ControlPlane) -> None:
    plane.resume_apiserver()
    if plane.apiserver_pid is None:
        await plane.start_apiserver()
