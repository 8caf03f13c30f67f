"""The control plane keeps its promises; what fails here would otherwise look like a fault of the controller."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.controlplane.kube import Kube, KubeError
from tests.controlplane.server import ControlPlane, free_ports

SERVICE = {"metadata": {"name": "web"}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}


async def test_an_object_is_created_patched_replaced_and_deleted(kube: Kube, namespace: str) -> None:
    created = await kube.create("services", SERVICE, namespace)
    assert created["spec"]["ports"][0]["nodePort"] in range(10000, 32768)

    status = {"status": {"loadBalancer": {"ingress": [{"ip": "127.84.0.1", "ipMode": "Proxy"}]}}}
    patched = await kube.patch("services", "web", status, namespace, kind="strategic", subresource="status")
    assert patched["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "Proxy"

    patched["metadata"]["labels"] = {"changed": "yes"}
    await kube.replace("services", patched, namespace)
    assert [one["metadata"]["name"] for one in await kube.list("services", namespace, labelSelector="changed=yes")] == [
        "web"
    ]

    await kube.delete("services", "web", namespace)
    await kube.delete("services", "web", namespace)
    assert await kube.find("services", "web", namespace) is None
    with pytest.raises(KubeError, match="404 NotFound"):
        await kube.get("services", "web", namespace)


async def test_several_yaml_documents_are_applied_repeatedly(kube: Kube, namespace: str) -> None:
    text = f"""
apiVersion: v1
kind: ServiceAccount
metadata: {{name: someone, namespace: {namespace}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: reader, namespace: {namespace}}}
rules: [{{apiGroups: [""], resources: [services], verbs: [get]}}]
"""
    first = await kube.apply(text)
    again = await kube.apply(text)
    assert [one["metadata"]["resourceVersion"] for one in first] == [
        one["metadata"]["resourceVersion"] for one in again
    ]


async def test_rbac_refuses_a_service_account_what_it_was_not_given(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    await kube.create("serviceaccounts", {"metadata": {"name": "nobody"}}, namespace)
    kubeconfig = await control_plane.service_account_kubeconfig(namespace, "nobody")
    assert kubeconfig.stat().st_mode & 0o077 == 0
    content = yaml.safe_load(kubeconfig.read_text())
    async with Kube(control_plane.url, content["users"][0]["user"]["token"], control_plane.ca) as nobody:
        with pytest.raises(KubeError, match=f"403 Forbidden: .*system:serviceaccount:{namespace}:nobody"):
            await nobody.list("services", namespace)


async def test_the_audit_log_tells_verb_resource_and_user_since_a_position(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    since = control_plane.audit_position()
    await kube.create("services", SERVICE, namespace)
    mine = [event for event in control_plane.audit_events(since) if event["user"]["username"] == "admin"]
    assert [(event["verb"], event["objectRef"]["resource"], event["stage"]) for event in mine] == [
        ("create", "services", "ResponseComplete")
    ]


async def test_a_watch_delivers_events_and_a_restart_ends_it_but_keeps_the_data(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def follow() -> None:
        async for event in kube.watch("services", namespace):
            seen.put_nowait(event["type"])

    follower = asyncio.create_task(follow())
    await kube.create("services", SERVICE, namespace)
    assert await asyncio.wait_for(seen.get(), 60) == "ADDED"
    await control_plane.restart_apiserver()
    with pytest.raises(aiohttp.ClientError):
        await follower
    assert await kube.find("services", "web", namespace) is not None


async def test_a_paused_server_is_silent_and_goes_on_afterwards(control_plane: ControlPlane, kube: Kube) -> None:
    control_plane.pause_apiserver()
    try:
        await asyncio.to_thread(_wait_until, lambda: _state(control_plane.apiserver_pid) == "T")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kube.get("namespaces", "kube-system"), 0.3)
    finally:
        control_plane.resume_apiserver()
    assert await kube.find("namespaces", "kube-system")


async def test_waiting_in_vain_says_what_was_seen(kube: Kube) -> None:
    seen: list[object] = []

    def in_vain(one: object) -> bool:
        seen.append(one)
        return False

    with pytest.raises(TimeoutError, match=r'namespaces None/kube-system after 5 s: \{"kind": "Namespace"'):
        await kube.wait_for("namespaces", "kube-system", in_vain, timeout=5)
    assert len(seen) > 1, "it looks again"


def test_the_processes_die_with_a_killed_test_run(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, sys
from tests.controlplane.process import Process
child = Process("sleeper", ["/bin/sleep", "600"], pathlib.Path({str(tmp_path)!r}) / "log")
child.start()
print(child.pid, flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    with parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        _wait_until(lambda: Path(f"/proc/{child}/comm").read_text().strip() == "sleep")
        parent.send_signal(signal.SIGKILL)
    _wait_until(lambda: _state(child) == "Z")


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _state(pid: int | None) -> str:
    """The letter of /proc, Z for a process that is gone already."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(20))) == 20
