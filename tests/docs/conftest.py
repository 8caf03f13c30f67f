"""What the pages' readers have at hand: a folder like a checkout, tools, a cluster, and on some pages what they have started before."""

import dataclasses
import shutil
import sys
from pathlib import Path

import pytest

from tests.controlplane import credentials
from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.docs import pages, script
from tests.docs.pages import ROOT
from tests.harness.fixtures import control_plane, kube, kubectl, namespace, stack
from tests.harness.stack import apply_access

__all__ = ["control_plane", "kube", "kubectl", "namespace", "stack"]


@pytest.fixture
async def kubeconfig(control_plane: ControlPlane, kube: Kube) -> Path:
    """The controller's; made anew for each page, since one of them removes the account."""
    await apply_access(kube)
    return await control_plane.service_account_kubeconfig("kube-system", "ccm-lb")


@pytest.fixture
def admin(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Path:
    """The reader's kubeconfig, whose namespace is the test's."""
    content = credentials.kubeconfig(control_plane.url, control_plane.token, control_plane.ca)
    for context in content["contexts"]:
        context["context"]["namespace"] = namespace
    return credentials.write_kubeconfig(tmp_path / "admin.kubeconfig", content)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder like the repository's root. What pages read is there; what they write stays in it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    shutil.copytree(ROOT / "manifests", folder / "manifests")
    for name in ("Makefile", "pyproject.toml", "tests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    return folder


@dataclasses.dataclass(frozen=True)
class Reader:
    """Somebody at a shell in the checkout."""

    folder: Path
    tools: tuple[Path, ...]
    variables: dict[str, str]

    async def follow(self, page: str, timeout: float = 100.0, **variables: str) -> None:
        """Type what the page says. AssertionError where it does not work."""
        environment = script.environment(self.folder, self.tools, **self.variables, **variables)
        await script.play(pages.read(page), self.folder, environment, timeout)


@pytest.fixture
def reader(checkout: Path, kubectl: Path, admin: Path) -> Reader:
    return Reader(checkout, (Path(sys.prefix) / "bin", kubectl.parent), {"KUBECONFIG": str(admin)})
