"""The manifests on the genuine API server, and the controller under exactly the rights that they grant."""

import asyncio
import base64
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.controlplane.server import AuditEvent
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match
from tests.harness import objects
from tests.harness.stack import ACCESS, MANIFESTS, Stack

USER = "system:serviceaccount:kube-system:ccm-lb"
NODES = Match(watch=True, path="/nodes$")


class Right(NamedTuple):
    verb: str
    resource: str  # with a subresource behind a slash
    group: str


def granted() -> set[Right]:
    rules = [
        rule
        for name in ACCESS
        for document in yaml.safe_load_all((MANIFESTS / name).read_text())
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
        await stack.create(objects.service("bad", {"http": 18090}, annotations={"ccm-lb.dev/proxy-protocol": "v3"}))
        await stack.wait_event("bad", "SyncLoadBalancerFailed")
        await stack.patch("bad", {"metadata": {"annotations": {"example.com/again": "1"}}})
        await wait_counted(stack, "bad")
        # An ipMode that is not known here is tried.
        await stack.create(objects.service("odd", {"http": 18091}, annotations={"ccm-lb.dev/ip-mode": "Magic"}))
        await stack.wait_event("odd", "IPModeRefused")
        # A node that changes behind a silent watch is asked for by the resync.
        assert api_proxy.stall(NODES) == 1
        await stack.kube.patch("nodes", "n1", {"metadata": {"labels": {"a": "b"}}}, kind="strategic")
        (asked_for_node,) = (await api_proxy.wait_for(Match(path="/nodes/n1$")))[:1]
        while asked_for_node.status is None:  # not before it is answered: it has to stand in the audit log
            await asyncio.sleep(0.01)
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


async def test_the_manifests_apply_and_their_configuration_is_one_that_the_controller_takes(
    stack: Stack, kubectl: Path, tmp_path: Path
) -> None:
    overlay = MANIFESTS / "overlays" / "fakecloud"
    admin = f"--kubeconfig={stack.plane.kubeconfig}"
    applied = await run(str(kubectl), admin, "apply", f"--kustomize={overlay}", "--output=name")
    assert {"deployment.apps/ccm-lb", "deployment.apps/fakecloud", "secret/ccm-lb"} <= set(applied.split())
    deployment = await stack.kube.get("apps/v1/deployments", "ccm-lb", "kube-system")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["run", "--config=/etc/ccm-lb/ccm-lb.yaml"]
    # The pod's files, at another place.
    secret = await stack.kube.get("secrets", "ccm-lb", "kube-system")
    for name, content in secret["data"].items():
        text = base64.b64decode(content).decode().replace("/etc/ccm-lb", str(tmp_path))
        (tmp_path / name).write_text(text)
    await run(sys.executable, "-m", "ccm_lb", "config", f"--config={tmp_path / 'ccm-lb.yaml'}")
    # The account and its rights stay: the other tests' controllers live on them.
    made = ("deployment/ccm-lb", "deployment/fakecloud", "service/fakecloud", "secret/ccm-lb")
    await run(str(kubectl), admin, "delete", "--namespace=kube-system", "--wait=false", *made)


async def run(*command: str) -> str:
    """What the command prints; AssertionError with its complaint when it fails."""
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
