"""What the Dockerfile does, without Docker: the wheel and the pinned packages alone make both programs run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = ROOT / ".tools" / "bin" / "uv"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment with requirements.lock and our wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("package")
    environment = {**os.environ, "VIRTUAL_ENV": str(folder / "venv")}

    def uv(*arguments: str) -> None:
        done = subprocess.run([UV, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    uv("venv", "-q", "--python", sys.executable, str(folder / "venv"))
    uv("build", "-q", "--wheel", "--out-dir", str(folder / "dist"))
    uv("pip", "install", "-q", "--require-hashes", "-r", "requirements.lock")
    uv("pip", "install", "-q", "--no-deps", *map(str, (folder / "dist").glob("*.whl")))
    return folder / "venv" / "bin"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["ccm-lb", "version"], "0.1.0"),
        (["ccm-lb", "backends"], "fakecloud"),
        (["ccm-lb", "run", "--help"], "--leader-elect"),
        (["fakecloud", "serve", "--help"], "--pool"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_installed_programs_run(installed: Path, command: list[str], says: str) -> None:
    done = subprocess.run(
        [installed / command[0], *command[1:]], cwd="/", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_the_dockerfile_uses_what_is_tested_here() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert "--require-hashes -r requirements.lock" in text
    assert 'ENTRYPOINT ["ccm-lb"]' in text
    assert "USER 65532:65532" in text
