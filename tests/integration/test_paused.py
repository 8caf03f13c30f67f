"""A Service that is to be left alone, by the controller as a process, and what `kubectl wait` makes of it."""

import asyncio
import subprocess
from pathlib import Path

from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match
from tests.harness import objects
from tests.harness.stack import Stack

PAUSED = "ccm-lb.dev/paused"
WRITES = Match(mutating=True, path="/services/web/status$")


def annotated(value: str | None) -> dict[str, object]:
    return {"metadata": {"annotations": {PAUSED: value}}}


async def wait_condition(stack: Stack, kubectl: Path, condition: str, timeout: str = "60s") -> None:
    """As a user waits for it."""
    command = [str(kubectl), "--kubeconfig", str(stack.plane.kubeconfig), "-n", stack.namespace]
    waiting = [*command, "wait", f"--for=condition={condition}", "service/web", f"--timeout={timeout}"]
    done = await asyncio.to_thread(subprocess.run, waiting, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


async def test_while_a_service_is_paused_neither_cloud_nor_api_server_is_written_to_a_restart_included(
    stack: Stack, kubectl: Path, api_proxy: FaultProxy
) -> None:
    await stack.add_node("n1")
    kubeconfig = stack.through(api_proxy)
    async with stack.controller(kubeconfig=kubeconfig) as controller:
        await controller.start_ready()
        served = await stack.create(objects.service("web"))
        uid = served["metadata"]["uid"]
        await stack.wait_served("web")
        await stack.patch("web", annotated("true"))
        await wait_condition(stack, kubectl, "LoadBalancerPaused")
        await controller.terminate()
    position = await stack.cloud.position()
    api_proxy.forget()
    async with stack.controller(kubeconfig=kubeconfig, name="second") as controller:
        await controller.start_ready()
        await stack.add_node("n2")
        await stack.patch("web", {"spec": {"ports": [{"name": "http", "port": 18081, "targetPort": 8080}]}})
        # One that is served after these changes shows that they had their turn.
        await stack.create(objects.service("other", {"http": 18090}))
        other = await stack.wait_served("other")
        await stack.wait_balanced(
            other["metadata"]["uid"],
            lambda one: sorted(t["server"] for t in one["targets"]) == stack.servers("n1", "n2"),
        )
        assert [one.request.path for one in api_proxy.matching(WRITES)] == []
        await stack.delete("web")
        await stack.wait("web", lambda one: "DeletionWaits" in str((one or {})["status"]["conditions"]))
        balanced = await stack.cloud.load_balancer(uid)
        assert balanced is not None
        assert [one["port"] for one in balanced["listeners"]] == [18080]
        await stack.cloud.verify(position, owner=uid)
        await stack.patch("web", annotated(None))
        await stack.wait_gone("web")
        assert await stack.cloud.load_balancer(uid) is None


async def test_when_a_pause_ends_what_was_done_by_hand_in_the_cloud_is_brought_back(
    stack: Stack, kubectl: Path
) -> None:
    await stack.add_node("n1")
    async with stack.controller() as controller:
        await controller.start_ready()
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait_served("web")
        await stack.patch("web", annotated("true"))
        await wait_condition(stack, kubectl, "LoadBalancerPaused")
        balanced = await stack.wait_balanced(uid, lambda one: one["targets"])
        await stack.cloud.request("PATCH", f"/v1/load-balancers/{balanced['id']}", {"targets": []})
        await stack.patch("web", annotated(None))
        await stack.wait_balanced(uid, lambda one: [t["server"] for t in one["targets"]] == stack.servers("n1"))
        await wait_condition(stack, kubectl, "LoadBalancerPaused=false")
