"""fakecloud without the controller: the distribution `ccm-lb-fakecloud`, in an environment of its own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.fakecloud.clients import DEADLINE

ROOT = Path(__file__).parents[2]
UV = ROOT / ".tools" / "bin" / "uv"


def declared(path: Path) -> list[str]:
    dependencies: list[str] = tomllib.loads(path.read_text())["project"]["dependencies"]
    return dependencies


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the distribution in it, at the versions of the lock file."""
    folder = tmp_path_factory.mktemp("distribution")
    (folder / "pins").write_text(
        "\n".join(re.findall(r"^[\w.-]+==[^ ;\\]+", (ROOT / "requirements.lock").read_text(), re.M))
    )
    python = folder / "venv" / "bin" / "python"
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(folder / "venv")],
        ["build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT / "fakecloud")],
    ):
        subprocess.run([str(UV), *command], check=True)
    [wheel] = folder.glob("*.whl")
    install = ["pip", "install", "--quiet", "--python", str(python), "--constraint", str(folder / "pins"), str(wheel)]
    subprocess.run([str(UV), *install], check=True)
    return folder / "venv"


def test_what_it_needs_is_part_of_what_the_whole_needs() -> None:
    assert set(declared(ROOT / "fakecloud" / "pyproject.toml")) < set(declared(ROOT / "pyproject.toml"))


def test_it_serves_without_what_the_controller_needs(environment: Path) -> None:
    names = {one.name.partition("-")[0] for one in environment.glob("lib/python*/site-packages/*")}
    assert {"fakecloud", "aiohttp"} <= names
    assert not names & {"ccm_lb", "kopf", "kubernetes", "tests"}
    script = (
        "import pkgutil, fakecloud, importlib\n"
        "for one in pkgutil.walk_packages(fakecloud.__path__, 'fakecloud.'):\n"
        "    if one.name not in ('fakecloud.__main__', 'fakecloud.testing.pytest_plugin'):\n"
        "        importlib.import_module(one.name)\n"
        "from fakecloud.client import Client\n"
        "print(Client().get_cloud().delivery)\n"
    )
    done = subprocess.run(
        [environment / "bin" / "fakecloud", "exec", "--", environment / "bin" / "python", "-c", script],
        capture_output=True, text=True, timeout=DEADLINE, check=False, env=os.environ | {"PYTHONPATH": ""},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("proxy\n", "")


def test_it_is_small(environment: Path) -> None:
    size = sum(one.stat().st_size for one in environment.rglob("*") if one.is_file() and not one.is_symlink())
    assert size < 80 * 2**20
