"""What the version before this one left, in Services, in the cloud and in fakecloud's file, is read by this one, with the same flags."""

import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.controlplane.process import Process
from tests.controlplane.server import free_ports
from tests.harness import objects
from tests.harness.controller import Controller
from tests.harness.stack import Json, Stack, answer
from tests.harness.traffic import going_on

ROOT = Path(__file__).parents[2]
UV = ROOT / ".tools" / "bin" / "uv"
# The newest tag that this commit comes after; until there is one, the commit that was deployed first.
FIRST = "4f3820e"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with the version before and the packages that it pinned."""
    folder = tmp_path_factory.mktemp("previous")
    commit = _git("describe", "--tags", "--abbrev=0", "HEAD~1") or _git("rev-parse", "--verify", f"{FIRST}^{{commit}}")
    if not commit:
        pytest.skip("the version before is not in this clone: git fetch --unshallow --tags")
    (source := folder / "source").mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=packed, check=True)
    environment = {**os.environ, "VIRTUAL_ENV": str(folder / "venv")}
    for arguments in (
        ["venv", "-q", "--python", sys.executable, str(folder / "venv")],
        ["build", "-q", "--wheel", "--out-dir", str(folder / "dist")],
        ["pip", "install", "-q", "--require-hashes", "-r", "requirements.lock"],
    ):
        subprocess.run([UV, *arguments], cwd=source, env=environment, check=True)
    wheels = map(str, (folder / "dist").glob("*.whl"))
    subprocess.run([UV, "pip", "install", "-q", "--no-deps", *wheels], env=environment, check=True)
    return folder / "venv" / "bin"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


class PreviousController(Controller):
    """The same flags, the program of before."""

    def __init__(self, stack: Stack, programs: Path) -> None:
        (self.port,) = free_ports(1)
        self.log = stack.directory / "ccm-lb-previous.log"
        command = [
            *(str(programs / "ccm-lb"), "run", "--bind-address=127.0.0.1", f"--port={self.port}", "-v=2"),
            *("--allow-addresses=loopback", "--cloud-provider=fakecloud", f"--cloud-config={stack.cloud.config()}"),
            f"--kubeconfig={stack.kubeconfig}",
        ]
        self._process = Process("ccm-lb-previous", command, self.log)


@contextlib.asynccontextmanager
async def cloud_of(stack: Stack, programs: Path) -> AsyncIterator[None]:
    """The cloud is the program of before, and begins with nothing; afterwards it is today's, with what that one left in its file."""
    today = stack.cloud._process
    await stack.cloud.kill()
    for file in stack.directory.glob("fakecloud.db*"):
        file.unlink()
    command = [str(programs / "fakecloud"), *today._command[3:]]
    stack.cloud._process = Process("fakecloud-previous", command, stack.directory / "fakecloud-previous.log")
    await stack.cloud.start()
    try:
        yield
    finally:
        await stack.cloud.kill()
        stack.cloud._process = today


async def test_the_next_version_takes_over_what_the_one_before_left(stack: Stack, previous: Path) -> None:
    async with cloud_of(stack, previous):
        for name in ("n1", "n2"):
            await stack.add_node(name)
        async with PreviousController(stack, previous) as before:
            await before.start_ready()
            made = [
                await stack.create(objects.service("plain")),
                await stack.create(objects.service("vip", annotations={"ccm-lb.dev/ip-mode": "VIP"})),
                await stack.create(objects.service("sticky", sessionAffinity="ClientIP")),
            ]
            for service in made:
                await stack.serve(service, "n1", "n2")
                await answer(await stack.wait_served(service["metadata"]["name"]))
            published = [objects.ingress(await stack.get(one["metadata"]["name"])) for one in made]
            balancers = await _by_owner(stack)
            await before.terminate()
    await stack.cloud.start()
    assert {uid: _what_lasts(one) for uid, one in (await _by_owner(stack)).items()} == {
        uid: _what_lasts(one) for uid, one in balancers.items()
    }, "fakecloud has read its file"
    since = await stack.cloud.position()
    addresses = [(one[0]["ip"], 18080) for one in published]
    for address, port in addresses:
        await _reached(address, port)
    async with going_on(addresses) as traffic, stack.controller() as after:
        await after.start_ready()
        await after.wait_logged("became the leader")
        later = await stack.create(objects.service("later"))
        await stack.serve(later, "n1")
        await answer(await stack.wait_served("later"))
        for service, ingress in zip(made, published, strict=True):
            assert objects.ingress(await stack.get(service["metadata"]["name"])) == ingress
        written = [one for one in await stack.cloud.journal(since=str(since)) if one["applied"]]
        assert [one["owner"] for one in written] == [later["metadata"]["uid"]], "what is well is not touched"
        await stack.remove_node("n2")
        for service in made:
            await stack.wait_balanced(service["metadata"]["uid"], lambda one: len(one["targets"]) == 1)
        assert traffic.failures == []
    async with stack.controller() as after:
        await after.start_ready()
        for name in ("plain", "vip", "sticky", "later"):
            await stack.delete(name)
            await stack.wait_gone(name)
        await stack.wait_unbalanced()


async def _by_owner(stack: Stack) -> dict[str, Json]:
    return {one["owner"]["uid"]: one for one in await stack.cloud.load_balancers()}


def _what_lasts(load_balancer: Json) -> Json:
    return {name: load_balancer[name] for name in ("id", "listeners", "targets", "tags", "sessionAffinity")}


async def _reached(address: str, port: int) -> None:
    await answer({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}}, port)


async def test_the_version_before_takes_over_again_what_the_next_one_left(stack: Stack, previous: Path) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        made = await stack.create(objects.service("web"))
        await stack.serve(made, "n1")
        published = objects.ingress(await stack.wait_served("web"))
        await controller.terminate()
    since = await stack.cloud.position()
    async with PreviousController(stack, previous) as before:
        await before.start_ready()
        await before.wait_logged("became the leader")
        await stack.serve(await stack.create(objects.service("later")), "n1")
        await answer(await stack.wait_served("later"))
        assert objects.ingress(await stack.get("web")) == published
        owners = {one["owner"] for one in await stack.cloud.journal(since=str(since)) if one["applied"]}
        assert made["metadata"]["uid"] not in owners, "what is well is not touched"
        for name in ("web", "later"):
            await stack.delete(name)
            await stack.wait_gone(name)
        await stack.wait_unbalanced()
