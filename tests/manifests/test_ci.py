"""What pipelines take over: GitHub's action, GitLab's job, a compose file; their shell is run, the rest is read."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "manifests" / "ci"
ASK = "import os\nfrom fakecloud.client import Client\nprint(Client().get_cloud().action_seconds)\n"


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return content


def run(script: str, folder: Path, **environment: str) -> str:
    """What bash prints that runs a step as GitHub's runner does."""
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    done = subprocess.run(
        bash, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def own_processes(tmp_path: Path) -> Iterator[None]:
    """What a step leaves running in the background, as the runner wants, ends with the test."""
    yield
    for ready in tmp_path.glob("*.json"):
        os.kill(json.loads(ready.read_text())["pid"], signal.SIGTERM)


@pytest.mark.usefixtures("own_processes")
def test_githubs_action_starts_a_cloud_for_the_steps_that_follow(tmp_path: Path) -> None:
    action = read("github/action.yml")
    assert (action["runs"]["using"], set(action)) == ("composite", {"name", "description", "inputs", "outputs", "runs"})
    assert all({"required", "default", "description"} == set(one) for one in action["inputs"].values())
    files = {name: tmp_path / name.lower() for name in ("GITHUB_PATH", "GITHUB_ENV", "GITHUB_OUTPUT")}
    runner = {"RUNNER_TEMP": str(tmp_path), **{name: str(path) for name, path in files.items()}}
    given = {"package": str(ROOT / "fakecloud"), "options": "--action-seconds 0.5 --pool 127.93.21.0/24"}
    for step in action["runs"]["steps"]:
        assert (step["shell"], set(step) <= {"name", "id", "shell", "env", "run"}) == ("bash", True)
        inputs = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda one: given[one[1]], text)
            for name, text in step["env"].items()
        }
        printed = run(step["run"], tmp_path, **runner, **inputs)
    told = dict(line.split("=", 1) for line in files["GITHUB_ENV"].read_text().splitlines())
    assert f"::add-mask::{told['FAKECLOUD_TOKEN']}" in printed
    assert files["GITHUB_OUTPUT"].read_text() == f"url={told['FAKECLOUD_URL']}\n"
    python = Path(files["GITHUB_PATH"].read_text().strip()) / "python"
    assert run(f"{python} -c '{ASK}'", tmp_path, **told) == "0.5\n"


@pytest.mark.usefixtures("own_processes")
def test_gitlabs_job_finds_its_cloud(tmp_path: Path) -> None:
    job = read("gitlab.yml")[".fakecloud"]
    given = job["variables"] | {
        "FAKECLOUD_PACKAGE": str(ROOT / "fakecloud"),
        "FAKECLOUD_OPTIONS": "--action-seconds 0.25 --pool 127.93.22.0/24",
    }
    script = "\n".join([*job["before_script"], f"python3 -c '{ASK}'"])
    # As in the image that the job names, python3 is the environment's own once PATH has it.
    assert run(script, tmp_path, **given).splitlines()[-1] == "0.25"


def test_compose_says_what_fakecloud_takes() -> None:
    service = read("compose.yaml")["services"]["fakecloud"]
    environment = {name: value for name, value in service["environment"].items() if name != "FAKECLOUD_TOKEN"}
    command = [sys.executable, "-m", "fakecloud", "serve", "--help"]
    options = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in environment:
        assert f"--{name.removeprefix('FAKECLOUD_').lower().replace('_', '-')} " in options
