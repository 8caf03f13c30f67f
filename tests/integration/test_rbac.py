"""The manifests on the genuine API server, and the controller under exactly the rights that they grant."""

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.controlplane.server import AuditEvent
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match
from tests.harness import objects
from tests.harness.stack import MANIFESTS, Stack

USER = "system:serviceaccount:kube-system:ccm-lb"
NODES = Match(watch=True, path="/nodes$")


class Right(NamedTuple):
    verb: str
    resource: str  # with a subresource behind a slash
    group: str


def granted() -> set[Right]:
    rules = [
        rule
        for document in yaml.safe_load_all((MANIFESTS / "base" / "rbac.yaml").read_text())
        for rule in document.get("rules", [])
    ]
    return {
        Right(verb, resource, group)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(events: list[AuditEvent]) -> set[Right]:
    found = set()
    for event in events:
        if event["user"]["username"] != USER or "objectRef" not in event:
            continue
        ref = event["objectRef"]
        resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
        found.add(Right(event["verb"], resource, ref.get("apiGroup", "")))
    return found


async def test_every_right_granted_is_used_and_nothing_else_is_asked_for(stack: Stack, api_proxy: FaultProxy) -> None:
    position = stack.plane.audit_position()
    await stack.add_node("n1")
    flags = ("--resync-period=2s",)
    async with stack.controller(*flags, kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        # A change of the type vanishes from the watch: it has to be asked for.
        await stack.patch("web", {"spec": {"type": "ClusterIP"}})
        await stack.wait("web", lambda one: not (one or {})["metadata"].get("finalizers"))
        # The same failure twice is one event, counted up.
        for value in ("Magic", "Magic "):
            await stack.create(
                objects.service(f"bad-{len(value)}", {"http": 18090}, annotations={"ccm-lb.dev/ip-mode": "No"})
            )
        await stack.wait_event("bad-5", "SyncLoadBalancerFailed")
        await stack.patch("bad-5", {"metadata": {"annotations": {"example.com/again": "1"}}})
        await wait_counted(stack, "bad-5")
        # A node that changes behind a silent watch is asked for by the resync.
        assert api_proxy.stall(NODES) == 1
        await stack.kube.patch("nodes", "n1", {"metadata": {"labels": {"a": "b"}}}, kind="strategic")
        await api_proxy.wait_for(Match(path="/nodes/n1$"))
        await controller.terminate()

    events = stack.plane.audit_events(position)
    assert asked(events), "the audit log is empty"
    assert asked(events) == granted()
    refused = [
        one["requestURI"] for one in events if one["user"]["username"] == USER and one["responseStatus"]["code"] == 403
    ]
    assert refused == []


async def wait_counted(stack: Stack, name: str) -> None:
    async with asyncio.timeout(20):
        while True:
            events = await stack.kube.list("events", stack.namespace)
            if any(one["involvedObject"]["name"] == name and one.get("count", 1) > 1 for one in events):
                return
            await asyncio.sleep(0.05)


def built(overlay: Path) -> list[dict[str, Any]]:
    """The documents of an overlay and its base; kustomize itself where there is one."""
    content = yaml.safe_load((overlay / "kustomization.yaml").read_text())
    documents: list[dict[str, Any]] = []
    for resource in content["resources"]:
        path = (overlay / resource).resolve()
        documents += built(path) if path.is_dir() else [one for one in yaml.safe_load_all(path.read_text()) if one]
    for secret in content.get("secretGenerator", []):
        data = {name: (overlay / name).read_text() for name in secret["files"]}
        metadata = {"name": secret["name"], "namespace": content["namespace"]}
        documents.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data})
    return documents


async def test_the_manifests_apply_and_their_configuration_is_one_that_the_controller_takes(
    stack: Stack, tmp_path: Path
) -> None:
    overlay = MANIFESTS / "overlays" / "fakecloud"
    documents = built(overlay)
    for document in documents:
        await stack.kube.apply(document)
    deployment = await stack.kube.get("apps/v1/deployments", "ccm-lb", "kube-system")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["run", "--config=/etc/ccm-lb/ccm-lb.yaml"]
    # The pod's files, at another place.
    for name in ("ccm-lb.yaml", "cloud.yaml"):
        text = (overlay / name).read_text().replace("/etc/ccm-lb", str(tmp_path))
        (tmp_path / name).write_text(text)
    command = ["python", "-m", "ccm_lb", "config", f"--config={tmp_path / 'ccm-lb.yaml'}", "--output=json"]
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)
    assert shown.returncode == 0, shown.stderr
    for resource, kind in (
        ("apps/v1/deployments", ("ccm-lb", "fakecloud")),
        ("services", ("fakecloud",)),
        ("secrets", ("ccm-lb",)),
    ):
        for name in kind:
            await stack.kube.delete(resource, name, "kube-system")


@pytest.mark.skipif(
    shutil.which("kustomize") is None, reason="kustomize is not installed; the documents are applied one by one instead"
)
async def test_kustomize_builds_the_same_documents(stack: Stack) -> None:
    overlay = MANIFESTS / "overlays" / "fakecloud"
    out = await asyncio.to_thread(subprocess.check_output, ["kustomize", "build", str(overlay)], text=True)
    names = sorted((one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(out))
    assert names == sorted((one["kind"], one["metadata"]["name"]) for one in built(overlay))
