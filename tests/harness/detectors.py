"""Detectors of the service proxy on a genuine API server, with the rights of one account or another."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from ccm_lb.dataplane.cluster import detect
from ccm_lb.dataplane.cluster.detect import ServiceProxyDetector
from ccm_lb.dataplane.model import ServiceProxy
from ccm_lb.kube import connect as connecting
from ccm_lb.kube.api import KubeApi
from ccm_lb.redaction import Secrets
from tests import data
from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.data.applied import made
from tests.harness.stack import SETTLE, apply_access

ROLE = "ccm-lb-service-proxy"


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[KubeApi]:
    api = await connecting.connect(kubeconfig, None, user_agent="ccm-lb-tests", secrets=Secrets())
    try:
        yield api
    finally:
        await api.close()


@contextlib.asynccontextmanager
async def account(plane: ControlPlane, kube: Kube, *, granted: bool) -> AsyncIterator[Path]:
    """A kubeconfig of a new ServiceAccount, with the controller's rights on nodes and, if granted, those of the manifests' `ROLE`."""
    name = f"looker-{secrets.token_hex(4)}"
    await kube.create("serviceaccounts", {"metadata": {"name": name}}, "kube-system")
    nodes = {"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]}
    await kube.create("rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": name}, **nodes})
    await kube.create(
        "rbac.authorization.k8s.io/v1/clusterrolebindings",
        {"metadata": {"name": name}, **binding("ClusterRole", name, name)},
    )
    if granted:
        await grant(kube, name)
    yield await plane.service_account_kubeconfig("kube-system", name)
    await kube.delete("rbac.authorization.k8s.io/v1/rolebindings", name, "kube-system")


async def grant(kube: Kube, name: str) -> None:
    await apply_access(kube)
    body = {"metadata": {"name": name}, **binding("Role", ROLE, name)}
    await kube.create("rbac.authorization.k8s.io/v1/rolebindings", body, "kube-system")


def binding(kind: str, role: str, name: str) -> data.Json:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}],
    }


class Watching:
    """A detector that runs, and what it told."""

    def __init__(self, api: KubeApi, period: float = detect.PERIOD) -> None:
        self.told: list[tuple[ServiceProxy, ServiceProxy | None]] = []
        self.detector = ServiceProxyDetector(api, [self._tell], period=period)

    def _tell(self, proxy: ServiceProxy, previous: ServiceProxy | None) -> None:
        self.told.append((proxy, previous))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.detector.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def wait(self, until: Callable[[ServiceProxy], object], timeout: float = SETTLE) -> ServiceProxy:
        try:
            async with asyncio.timeout(timeout):
                while not until(self.detector.current):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"after {timeout:g} s: {self.detector.current}") from None
        return self.detector.current


@contextlib.asynccontextmanager
async def watched(plane: ControlPlane, kube: Kube, items: Sequence[data.Json]) -> AsyncIterator[Watching]:
    """A detector that runs, with the rights of the manifests, in a cluster of these objects."""
    async with made(kube, items), account(plane, kube, granted=True) as kubeconfig, connected(kubeconfig) as api:
        watching = Watching(api)
        async with watching.running():
            yield watching
