"""What the pages' readers have at hand: a folder like a checkout, tools, a cluster, and on some pages what they have started before."""

import configparser
import dataclasses
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from tests.controlplane import credentials
from tests.controlplane.cache import Cache
from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.docs import pages, script
from tests.docs.pages import ROOT
from tests.harness import fixtures
from tests.harness.fixtures import control_plane, kube, kubectl, namespace, stack
from tests.harness.stack import apply_access

__all__ = ["control_plane", "kube", "kubectl", "namespace", "stack"]


@pytest.fixture
async def kubeconfig(control_plane: ControlPlane, kube: Kube) -> Path:
    """The controller's; made anew for each page, since one of them removes the account."""
    await apply_access(kube)
    return await control_plane.service_account_kubeconfig("kube-system", "ccm-lb")


@pytest.fixture(scope="session")
def peer() -> Path:
    """The Go service controller."""
    return fixtures.built(["peer"])["peer"]


@pytest.fixture
def admin(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Path:
    """The reader's kubeconfig, whose namespace is the test's."""
    content = credentials.kubeconfig(control_plane.url, control_plane.token, control_plane.ca)
    for context in content["contexts"]:
        context["context"]["namespace"] = namespace
    return credentials.write_kubeconfig(tmp_path / "admin.kubeconfig", content)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """
    A folder like the repository's root, made of copies: what a page writes there reaches nobody else.

    Only .venv is a link, since environments cannot be copied.
    """
    folder = tmp_path / "checkout"
    for name in ("fakecloud", "manifests", "tests/controlplane"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "tests" / "__init__.py", folder / "tests")
    (folder / ".venv").symlink_to(Path(sys.prefix))
    return folder


@pytest.fixture
def empty_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


@dataclasses.dataclass(frozen=True)
class Reader:
    """Somebody with a cluster and its kubectl."""

    tools: tuple[Path, ...]
    variables: dict[str, str]

    async def follow(self, page: str, folder: Path, timeout: float = 250.0, **variables: str) -> None:
        """Type in `folder` what the page says. AssertionError where it does not work."""
        environment = script.environment(folder, self.tools, **self.variables, **variables)
        await script.play(pages.read(page), folder, environment, timeout)


@pytest.fixture
def reader(kubectl: Path, admin: Path) -> Reader:
    return Reader(
        (Path(sys.prefix) / "bin", kubectl.parent),
        {"KUBECONFIG": str(admin), "CONTROLPLANE_CACHE": str(Cache.from_environment().root)},
    )


def install(pyproject: str, folder: Path) -> None:
    """Make the project of a pyproject.toml importable from `folder` with its entry points, as an installer would."""
    project = tomllib.loads(pyproject)["project"]
    dist_info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = configparser.ConfigParser()
    groups.read_dict(project["entry-points"])
    with (dist_info / "entry_points.txt").open("w") as file:
        groups.write(file)
