"""
What tests with a genuine API server stand on: one control plane for the whole session, and a namespace of its own for each test.

A conftest.py imports the fixtures that its tests use. The control plane is processes, files and ports; nothing in it belongs to an
event loop, so a session-wide fixture can hold it.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from tests.controlplane import build, recipes
from tests.controlplane.kube import Kube, KubeError
from tests.controlplane.server import ControlPlane
from tests.faultproxy.proxy import FaultProxy
from tests.harness import networks
from tests.harness.backends import NodePorts
from tests.harness.cloud import Fakecloud
from tests.harness.stack import Stack, apply_access


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    plane = ControlPlane(built(recipes.CONTROL_PLANE))
    asyncio.run(plane.start())
    yield plane
    asyncio.run(plane.stop())


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """The genuine kubectl of the API server's version."""
    return built(["kubectl"])["kubectl"]


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


@pytest.fixture(scope="session")
def kubeconfig(control_plane: ControlPlane) -> Path:
    """The controller's: a token of the ServiceAccount of the manifests, with the rights that they give it and no more."""

    async def make() -> Path:
        async with control_plane.kube() as kube:
            await apply_access(kube)
        return await control_plane.service_account_kubeconfig("kube-system", "ccm-lb")

    return asyncio.run(make())


@pytest.fixture
async def stack(
    control_plane: ControlPlane, kube: Kube, namespace: str, kubeconfig: Path, tmp_path: Path
) -> AsyncIterator[Stack]:
    """A cluster with a cloud, both empty; no controller runs yet."""
    with networks.reserved("127.84") as pool, networks.reserved("127.85") as nodes:
        async with Fakecloud(tmp_path, pool=f"{pool}.0/24") as cloud, NodePorts() as node_ports:
            yield Stack(control_plane, kube, namespace, cloud, node_ports, tmp_path, kubeconfig, nodes)


@pytest.fixture
async def api_proxy(stack: Stack) -> AsyncIterator[FaultProxy]:
    """Faults between a controller and the API server: give it `stack.through(api_proxy)` as its kubeconfig."""
    async with FaultProxy(stack.plane.url, ca=stack.plane.ca) as proxy:
        yield proxy


@pytest.fixture
async def cloud_proxy(stack: Stack) -> AsyncIterator[FaultProxy]:
    """Faults between a controller and the cloud: give it `cloud_proxy.url` as the cloud's."""
    async with FaultProxy(stack.cloud.url) as proxy:
        yield proxy


def kube_version() -> str:
    """Of the control plane and the nodes."""
    return recipes.checked_version(os.environ.get("KUBE_VERSION") or recipes.default_kube_version())


def built(names: Sequence[str]) -> dict[str, Path]:
    """Minutes of building do not belong inside one test's time limit, so what is missing fails the test."""
    version = kube_version()
    binaries = build.find_binaries(names, version)
    missing = sorted(set(names) - set(binaries))
    if missing:
        pytest.fail(
            f"{', '.join(missing)} {version} not built: python -m tests.controlplane build --version {version}",
            pytrace=False,
        )
    return binaries


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
