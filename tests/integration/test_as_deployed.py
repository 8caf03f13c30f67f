"""What the image's container gives a process: a uid without a name, no home, no folder to write to, nearly no environment."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
import yarl

from tests.harness import objects, pod
from tests.harness.controller import Controller
from tests.harness.stack import MANIFESTS, Stack, answer


def status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: words.split() for name, _, words in (line.partition(":") for line in lines)}


def variables(pid: int) -> set[str]:
    return {one.partition("=")[0] for one in Path(f"/proc/{pid}/environ").read_text().split("\0") if one}


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def mapped(pid: int) -> str:
    """The libraries that a process has loaded: how far its imports are."""
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into the root of another user's process")
async def test_every_controller_of_these_tests_runs_as_the_image_does(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        assert controller.pid is not None
        seen, root = status(controller.pid), Path(f"/proc/{controller.pid}/root")
        assert seen["Uid"] == seen["Gid"] == ["65532"] * 4
        assert (seen["CapBnd"], seen["CapEff"], seen["NoNewPrivs"]) == (["0" * 16], ["0" * 16], ["1"])
        assert variables(controller.pid) == {"PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
        assert os.statvfs(root).f_flag & os.ST_RDONLY
        # But for the folders in which this checkout and its Python lie.
        mounted = {Path(path).parts[1] for path in (pod.ROOT, sys.prefix, sys.base_prefix)}
        assert not [name for name in {"home", "work", "var", "srv"} - mounted if (root / name).exists()]
        assert not controller.logged("the watch ended"), controller.last_words()


async def test_a_replica_in_a_pod_serves_with_its_service_account_and_its_secret(stack: Stack) -> None:
    account = "/var/run/secrets/kubernetes.io/serviceaccount"
    token = stack.directory / "token"
    token.write_text(await stack.kube.token("kube-system", "ccm-lb"))
    server = yarl.URL(stack.plane.url)
    mounts = pod.Mounts(
        {
            "/etc/ccm-lb/ccm-lb.yaml": MANIFESTS / "overlays" / "fakecloud" / "ccm-lb.yaml",
            "/etc/ccm-lb/cloud.yaml": stack.cloud.config(),
            f"{account}/token": token,
            f"{account}/ca.crt": stack.plane.ca,
        },
        {"KUBERNETES_SERVICE_HOST": str(server.host), "KUBERNETES_SERVICE_PORT": str(server.port)},
    )
    await stack.add_node("n1")
    async with Controller.in_pod(stack.directory, mounts, *pod.arguments()) as controller:
        await controller.start_ready()
        created = await stack.create(objects.service("web"))
        await stack.serve(created, "n1")
        assert await answer(await stack.wait_served("web")) == "n1"
        host = f'host="{server.authority}"'
        assert all(
            host in line for line in (await controller.get("/metrics"))[1].splitlines() if "rest_client_" in line[:12]
        )
        log = controller.log.read_text()
        assert "Traceback" not in log
        assert "the watch ended" not in log


@pytest.mark.skipif(os.geteuid() != 0, reason="a process with the id 1 needs root")
async def test_a_pod_that_is_deleted_while_it_starts_ends_at_once(tmp_path: Path) -> None:
    """The kernel keeps a signal that nothing handles from a process with the id 1: the kubelet would wait for its grace period."""
    cloud, kubeconfig = tmp_path / "cloud.yaml", tmp_path / "kubeconfig"
    cloud.write_text("token: abc")
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}]}"
    )
    flags = ("--cloud-provider=fakecloud", f"--cloud-config={cloud}", f"--kubeconfig={kubeconfig}", "--port=0")
    command = ("unshare", "--pid", "--fork", "--kill-child", *pod.command("run", *flags))
    starter = await asyncio.create_subprocess_exec(*command)
    try:
        async with asyncio.timeout(60):
            while not (first := children(starter.pid)) or "multidict" not in mapped(first[0]):
                await asyncio.sleep(0.005)
        os.kill(first[0], signal.SIGTERM)
        async with asyncio.timeout(30):
            assert await starter.wait() == 128 + signal.SIGTERM
    finally:
        if starter.returncode is None:
            starter.kill()
        await starter.wait()
