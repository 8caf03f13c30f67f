"""The image that an operator runs: what it is made of, and that its process works as a pod's does."""

import asyncio
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import aiohttp
import pytest

from tests.controlplane.process import Process
from tests.controlplane.server import free_ports
from tests.harness import objects
from tests.harness.stack import Stack, answer
from tests.image import sbom
from tests.image.builder import ROOT, Builder
from tests.image.pod import SERVICE_ACCOUNT, Image, service_account

MB = 1_000_000
UV = ROOT / ".tools" / "bin" / "uv"


def test_it_says_what_it_is_and_starts_the_controller_as_nobody_in_particular(image: Image) -> None:
    assert (image.config["Entrypoint"], image.config["Cmd"], image.config["User"]) == (
        ["ccm-lb"],
        ["run"],
        "65532:65532",
    )
    labels = image.config["Labels"]
    assert labels["org.opencontainers.image.title"] == "ccm-lb"
    assert labels["org.opencontainers.image.version"] == "0.1.0"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_same_image_starts_fakecloud(fakecloud_image: Image) -> None:
    assert (fakecloud_image.config["Entrypoint"], fakecloud_image.config["Cmd"]) == (["fakecloud"], ["serve"])


def test_its_own_layers_and_its_archive_are_small(image: Image, building: Builder, tmp_path: Path) -> None:
    ours = sum(
        path.stat().st_size
        for path in (image.root / "opt/ccm-lb").rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    archive = building.archive(tmp_path / "ccm-lb.tar").stat().st_size
    print(f"\nimage: our layers {ours / MB:.0f} MB, archive {archive / MB:.1f} MB")
    assert ours < 90 * MB
    assert archive < 55 * MB


def test_no_program_but_ours_is_on_the_path(image: Image) -> None:
    programs = {path.name for path in (image.root / "opt/ccm-lb/bin").iterdir() if not path.name.startswith("python")}
    assert programs == {"ccm-lb", "fakecloud"}


def test_nothing_has_to_be_compiled_at_the_start(image: Image) -> None:
    [packages] = (image.root / "opt/ccm-lb/lib").glob("python3*/site-packages")
    sources = [path for path in packages.rglob("*.py") if path.stat().st_size]
    compiled = {path.name.partition(".cpython")[0] for path in packages.rglob("*.pyc")}
    assert [str(path) for path in sources if path.stem not in compiled] == []
    done = subprocess.run(
        image.command("version", PYTHONVERBOSE="1"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # What Python says of a module that it reads from its source.
    assert re.findall(r"code object from '([^']*\.py)'", done.stderr) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["version"], "ccm-lb 0.1.0"),
        (["backends"], "fakecloud"),
        (["run", "--help"], "--leader-elect"),
        (["dataplane", "--help"], "explain"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_its_commands_run_as_a_container(image: Image, arguments: list[str], says: str) -> None:
    done = subprocess.run(image.command(*arguments), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout


def test_its_root_cannot_be_written_and_its_process_has_no_right_to_anything(image: Image) -> None:
    program = (
        "import os, pathlib;"
        "print(os.getuid(), [l for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapBnd', 'NoNewPrivs'))]);"
        "pathlib.Path('/tmp/x').write_text('x')"
    )
    python = Image(image.root, {**image.config, "Entrypoint": ["python", "-c"]})
    done = subprocess.run(python.command(program), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Read-only file system" in done.stderr
    assert done.stdout.startswith("65532 ")
    assert "CapEff:\\t0000000000000000" in done.stdout
    assert "CapBnd:\\t0000000000000000" in done.stdout
    assert "NoNewPrivs:\\t1" in done.stdout


async def test_as_a_pod_it_serves_a_service_and_is_ready_as_a_standby(
    image: Image, stack: Stack, tmp_path: Path
) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "ccm-lb.yaml").write_text(
        json.dumps({"cloud-provider": "fakecloud", "cloud-config": "/etc/ccm-lb/cloud.yaml"})
    )
    (folder / "cloud.yaml").write_text(json.dumps({"url": stack.cloud.url, "token": stack.cloud.token}))
    _readable(folder)
    account = service_account(tmp_path / "account", await stack.kube.token("kube-system", "ccm-lb"), stack.plane.ca)
    host, _, port = stack.plane.url.removeprefix("https://").partition(":")
    pods: list[Process] = []
    try:
        for name in ("leader", "standby"):
            (probe,) = free_ports(1)
            command = image.command(
                *("run", "--config=/etc/ccm-lb/ccm-lb.yaml", f"--port={probe}", "--allow-addresses=loopback"),
                volumes={"/etc/ccm-lb": folder, SERVICE_ACCOUNT: account},
                KUBERNETES_SERVICE_HOST=host,
                KUBERNETES_SERVICE_PORT=port,
                HOSTNAME=f"ccm-lb-{name}",
            )
            pods.append(Process(name, command, tmp_path / f"{name}.log"))
            began = time.monotonic()
            pods[-1].start()
            await _ready(pods[-1], probe)
            cpu, memory = _cost(pods[-1])
            print(
                f"\nimage: {name} ready after {time.monotonic() - began:.2f} s, {cpu:.2f} s of CPU, {memory / MB:.0f} MB"
            )
        await stack.add_node("n1")
        made = await stack.create(objects.service("web"))
        await stack.serve(made, "n1")
        assert await answer(await stack.wait_served("web")) == "n1"
    finally:
        for pod in pods:
            await pod.stop(grace=20.0)


def _readable(folder: Path) -> None:
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)


async def _ready(pod: Process, port: int, timeout: float = 90.0) -> None:
    async with aiohttp.ClientSession() as session:
        try:
            async with asyncio.timeout(timeout):
                while True:
                    assert pod.pid is not None, f"{pod.name} ended with {pod.exit_code}:\n{pod.last_words()}"
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                            if answer.status == 200:
                                return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{pod.name} is not ready after {timeout:g} s:\n{pod.last_words()}") from None


def _cost(pod: Process) -> tuple[float, int]:
    """Seconds of CPU and resident bytes of the process in the container, which is the last one of a chain of children."""
    assert pod.pid is not None
    pid = pod.pid
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[-1])
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")


def test_what_is_in_it_is_listed_with_licences(image: Image, tmp_path: Path) -> None:
    first, second = sbom.made(image.root, tmp_path), sbom.made(image.root, tmp_path)
    assert first == second
    listed = {one["name"]: one for one in first["components"]}
    locked = {line.partition("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    windows_only = {"colorama", "win-unicode-console", "win32-setctime", "pywin32"}
    assert {_normal(name) for name in locked - windows_only} <= {_normal(name) for name in listed}
    python = [one for one in first["components"] if one.get("purl", "").startswith("pkg:pypi")]
    assert [one["name"] for one in python if not one.get("licenses")] == []
    assert "libc6" in listed


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def test_the_wheel_is_the_same_whoever_builds_it(tmp_path: Path) -> None:
    built = []
    for name in ("one", "another"):
        source = tmp_path / name / "checkout"
        source.mkdir(parents=True)
        for part in ("ccm_lb", "fakecloud"):
            shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copyfile(ROOT / part, source / part)
        command = [str(UV), "build", "--quiet", "--wheel", "--out-dir", str(tmp_path / name), str(source)]
        subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        [wheel] = (tmp_path / name).glob("*.whl")
        built.append((wheel.name, hashlib.sha256(wheel.read_bytes()).hexdigest()))
    assert built[0] == built[1]
