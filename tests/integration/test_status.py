"""`ccm-lb status` from outside: a person with the viewer's rights, the genuine API server, and the leader behind its pod's proxy."""

import asyncio
import contextlib
import json
import os
import pty
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import credentials
from tests.controlplane.server import AuditEvent, free_ports
from tests.harness import objects
from tests.harness.commands import environment, run
from tests.harness.controller import Controller
from tests.harness.stack import MANIFESTS, Stack

VIEWER = "anna"
SERVICE_PROXY = {("list", "daemonsets"), ("list", "pods"), ("get", "configmaps"), ("list", "configmaps")}
RIGHTS = MANIFESTS / "components" / "viewer" / "rbac.yaml"


@pytest.fixture
async def viewer(stack: Stack) -> Path:
    """The kubeconfig of a ServiceAccount that has the viewer's rights, and no other."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": VIEWER, "namespace": "kube-system"}}
    documents = [account, *yaml.safe_load_all(RIGHTS.read_text())]
    group, subject = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": VIEWER, "namespace": "kube-system"}
    for kind, namespace in (("ClusterRole", None), ("Role", "kube-system")):
        documents.append(
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": {"name": "ccm-lb-viewer", **({"namespace": namespace} if namespace else {})},
                "roleRef": {"apiGroup": group, "kind": kind, "name": "ccm-lb-viewer"},
                "subjects": [subject],
            }
        )
    for document in documents:
        await stack.kube.apply(document)
    return await stack.plane.service_account_kubeconfig("kube-system", VIEWER)


@contextlib.asynccontextmanager
async def pod_of(stack: Stack, address: str) -> AsyncIterator[None]:
    """The Pod that the controller's process would be: the API server asks it at its address."""
    name = socket.gethostname()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": "ccm-lb",
            "automountServiceAccountToken": False,
            "containers": [{"name": "ccm-lb", "image": "ccm-lb"}],
        },
    }
    await stack.kube.create("pods", pod, "kube-system")
    status = {"status": {"podIP": address, "podIPs": [{"ip": address}], "phase": "Running"}}
    await stack.kube.patch("pods", name, status, "kube-system", kind="merge", subresource="status")
    try:
        yield
    finally:
        await stack.kube.delete("pods", name, "kube-system")


def own_address() -> str:
    """An address of this machine that the API server lets itself be sent to, which loopback's are not."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback's")
        return str(one.getsockname()[0])


def leader(controller: Controller) -> str:
    return f"--leader=http://127.0.0.1:{controller.port}"


async def eventually(*arguments: str, until: Any) -> dict[str, Any]:
    """The answer as JSON, once it is so."""
    said: dict[str, Any] = {}
    try:
        async with asyncio.timeout(90):
            while True:
                _, out, err = await run("status", "-o", "json", *arguments)
                assert out, err
                said = json.loads(out)
                if until(said):
                    return said
    except TimeoutError:
        raise AssertionError(f"not seen: {said}") from None


async def test_a_viewer_sees_everything_that_the_leader_knows_through_its_pod(stack: Stack, viewer: Path) -> None:
    address, (port,) = own_address(), free_ports(1)
    position = stack.plane.audit_position()
    await stack.add_node("n1")
    async with stack.controller("--bind-address=0.0.0.0", f"--port={port}") as controller, pod_of(stack, address):
        controller.port = port
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.create(objects.service("bad", {"http": 18090}, annotations={"ccm-lb.dev/proxy-protocol": "v3"}))
        await stack.wait_served("web")
        await stack.wait_event("bad", "SyncLoadBalancerFailed")
        asked = (f"--kubeconfig={viewer}", f"--leader-port={port}", "-n", stack.namespace)
        said = await eventually(*asked, until=lambda one: one["services"][0]["lastError"])
        bad, web = said["services"]
        assert said["leader"]["notAsked"] is None
        assert (bad["state"], bad["addresses"]) == ("failing", [])
        assert "proxy-protocol" in bad["lastError"]
        assert 0 < bad["retryInSeconds"] <= 300
        assert (web["state"], web["lastError"], web["nodes"]) == ("served", None, {"in": 1, "out": 0})
        assert web["addresses"][0]["ipMode"] == "Proxy"

        code, out, _ = await run("status", *asked)
        lines = out.splitlines()
        assert code == 1, "one Service is not served"
        assert max(map(len, lines)) <= 100
        assert lines[0].startswith("SERVICE")
        assert [one for one in lines if one.startswith("  ") and "proxy-protocol" in one]
        assert "\x1b" not in out, "no colour where nobody sees it"

        await stack.delete("bad")
        await stack.wait_gone("bad")
        assert (await run("status", *asked))[0] == 0

        cloud = ("--cloud-provider=fakecloud", f"--cloud-config={stack.cloud.config()}", "--allow-addresses=loopback")
        code, out, err = await run("explain", f"{stack.namespace}/web", f"--kubeconfig={viewer}", *cloud)
        assert code == 0, err
        assert "in the cloud: as it is wanted" in out
        code, out, err = await run("plan", f"--kubeconfig={viewer}", *cloud)
        assert (code, err) == (0, ""), out

    used = rights_used(stack.plane.audit_events(position))
    # Which service proxy there is, another component lets be seen; without it an explanation knows less.
    assert used - SERVICE_PROXY == granted() - {("list", "events")}, "events only where the leader cannot be asked"


async def test_without_the_leader_the_cluster_alone_is_shown_and_that_is_said(stack: Stack, viewer: Path) -> None:
    await stack.add_node("n1")
    position = stack.plane.audit_position()
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("bad", {"http": 18090}, annotations={"ccm-lb.dev/proxy-protocol": "v3"}))
        await stack.wait_event("bad", "SyncLoadBalancerFailed")
        # No pod has this name, so the API server's proxy leads nowhere.
        code, out, _ = await run("status", f"--kubeconfig={viewer}", "-n", stack.namespace)
        assert code == 1
        assert "What only the leader knows (RETRY, and why) is missing" in out
        assert "--leader" in out
        assert "SyncLoadBalancerFailed" in out
        assert ("list", "events") in rights_used(stack.plane.audit_events(position))
        # Whoever reaches the port asks there.
        said = await eventually(
            f"--kubeconfig={viewer}", "-n", stack.namespace, leader(controller), until=lambda one: one["services"]
        )
        assert said["leader"]["notAsked"] is None


async def test_a_standby_is_not_taken_for_the_leader(stack: Stack, viewer: Path) -> None:
    async with stack.controller() as first, stack.controller(name="second") as second:
        await first.start_ready()
        await second.start_ready()
        said = await eventually(f"--kubeconfig={viewer}", leader(second), until=lambda one: True)
        assert "does not lead" in said["leader"]["notAsked"]


async def test_a_cluster_that_cannot_be_asked_is_an_exit_code_of_its_own(stack: Stack, tmp_path: Path) -> None:
    nobody = credentials.kubeconfig("http://127.0.0.1:1", "x", None)
    path = credentials.write_kubeconfig(tmp_path / "nobody", nobody)
    code, out, err = await run("status", f"--kubeconfig={path}", "-o", "json")
    assert (code, err[:8]) == (3, "ccm-lb: ")
    assert "cannot be reached" in json.loads(out)["error"]
    assert (await run("status", f"--kubeconfig={tmp_path / 'none'}"))[0] == 2


async def test_what_is_watched_is_shown_again_when_it_changes_in_colour_on_a_terminal(
    stack: Stack, viewer: Path
) -> None:
    await stack.add_node("n1")
    command = (sys.executable, "-m", "ccm_lb", "status", "--watch", f"--kubeconfig={viewer}", "-n", stack.namespace)
    ours, theirs = pty.openpty()
    watched = stack.directory / "watched"
    with watched.open("wb") as file:
        plain = await asyncio.create_subprocess_exec(*command, stdout=file, stderr=file, env=environment())
        colored = await asyncio.create_subprocess_exec(
            *command, stdout=theirs, stderr=theirs, env={**environment(), "TERM": "xterm"}
        )
        os.close(theirs)
        try:
            await until_in(watched, "no Service asks for a load balancer")
            await stack.create(objects.service("web"))
            await until_in(watched, f"{stack.namespace}/web")
            seen = b""
            async with asyncio.timeout(60):
                while b"\x1b[1mSERVICE" not in seen:
                    seen += await asyncio.to_thread(os.read, ours, 4096)
            plain.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(plain.wait(), 20) == 130
        finally:
            for process in (plain, colored):
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            os.close(ours)
    assert "\x1b" not in watched.read_text()
    assert "Traceback" not in watched.read_text()


async def until_in(path: Path, words: str) -> None:
    def printed() -> str:
        return path.read_text()

    try:
        async with asyncio.timeout(60):
            while words not in printed():
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{words!r} is not in {printed()!r}") from None


def rights_used(events: list[AuditEvent]) -> set[tuple[str, str]]:
    found = set()
    for event in events:
        if event["user"]["username"] == f"system:serviceaccount:kube-system:{VIEWER}" and "objectRef" in event:
            ref = event["objectRef"]
            found.add((event["verb"], "/".join(filter(None, (ref["resource"], ref.get("subresource"))))))
    return found


def granted() -> set[tuple[str, str]]:
    return {
        (verb, resource)
        for document in yaml.safe_load_all(RIGHTS.read_text())
        for rule in document["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
