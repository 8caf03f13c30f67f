"""`ccm-lb plan`: what would be called, on a genuine API server and a genuine fakecloud, of which neither is written to."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.harness import objects
from tests.harness.commands import run
from tests.harness.stack import Stack

CONTROLLER = "system:serviceaccount:kube-system:ccm-lb"


def flags(stack: Stack) -> list[str]:
    told = ["--cloud-provider=fakecloud", f"--cloud-config={stack.cloud.config()}", "--allow-addresses=loopback"]
    return [*told, f"--kubeconfig={stack.plane.kubeconfig}"]


async def planned(stack: Stack, *more: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and steps; AssertionError where something was written meanwhile."""
    position, before = stack.plane.audit_position(), len(await stack.cloud.journal())
    code, out, err = await run("plan", "-o", "json", *flags(stack), *more)
    assert {one["method"] for one in (await stack.cloud.journal())[before:]} <= {"GET"}, "the cloud was written to"
    ours = [
        one
        for one in stack.plane.audit_events(position)
        if one.get("userAgent", "").startswith("ccm-lb/") and one["user"]["username"] != CONTROLLER
    ]
    assert ours
    written = [one["requestURI"] for one in ours if one["verb"] not in ("get", "list")]
    assert all("dryRun=All" in uri for uri in written), "the cluster was written to"
    assert out, err
    steps: list[dict[str, Any]] = json.loads(out).get("services", [])
    return code, [one for one in steps if one["service"].startswith(stack.namespace)]


async def test_a_plan_follows_a_load_balancer_from_its_creation_to_its_end(stack: Stack) -> None:
    await stack.add_node("n1")
    created = await stack.create(objects.service("web"))
    code, (step,) = await planned(stack)
    assert (code, step["action"]) == (2, "create")
    assert step["firstCalls"] == [f"POST {stack.cloud.url}/v1/load-balancers"]
    before = len(await stack.cloud.journal())
    code, _, err = await run("run", "--dry-run", "--log-format=json", *flags(stack))
    journal = [json.loads(line) for line in err.splitlines()]
    assert (code, journal[-1]["message"]) == (2, "dry run: nothing was written")
    (ours,) = [one for one in journal if one.get("service") == f"{stack.namespace}/web"]
    assert (ours["action"], ours["calls"]) == ("create", step["firstCalls"])
    assert {one["method"] for one in (await stack.cloud.journal())[before:]} == {"GET"}
    async with stack.controller("--drift=off") as controller:
        await controller.start_ready()
        await stack.wait_served("web")
        code, (step,) = await planned(stack)
        assert (code, step["action"]) == (0, "nothing"), step
        balancer = await stack.cloud.load_balancer(created["metadata"]["uid"])
        assert balancer is not None
        await stack.cloud.request("PATCH", f"/v1/load-balancers/{balancer['id']}", {"name": "mine"})
        code, (step,) = await planned(stack)
        assert (code, step["action"], step["cloud"]["differences"][0]["setting"]) == (2, "update", "name")
        assert step["firstCalls"] == [f"PATCH {stack.cloud.url}/v1/load-balancers/{balancer['id']}"]
        await controller.terminate()
    await stack.delete("web")
    code, (step,) = await planned(stack)
    assert (code, step["action"]) == (2, "delete")
    assert step["firstCalls"] == [f"DELETE {stack.cloud.url}/v1/load-balancers/{balancer['id']}"]


async def test_a_manifest_is_planned_before_it_is_applied(stack: Stack, tmp_path: Path) -> None:
    await stack.add_node("n1")
    manifest = tmp_path / "new.yaml"
    service = {"apiVersion": "v1", "kind": "Service", **objects.service("new")}
    manifest.write_text(yaml.safe_dump_all([{"kind": "ConfigMap", "metadata": {"name": "x"}}, service]))
    code, (step,) = await planned(stack, "-f", str(manifest), "-n", stack.namespace)
    assert (code, step["service"], step["action"]) == (2, f"{stack.namespace}/new", "create")
    assert await stack.kube.find("services", "new", stack.namespace) is None

    service["metadata"]["annotations"] = {"ccm-lb.dev/proxy-protocol": "v3"}
    manifest.write_text(yaml.safe_dump(service))
    code, (step,) = await planned(stack, "-f", str(manifest), "-n", stack.namespace)
    assert (code, step["action"]) == (1, "unknown"), "what cannot be carried out is no plan"
    assert "proxy-protocol" in step["reason"]


async def test_mistakes_end_with_1_so_that_2_always_means_something_to_do(stack: Stack, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.yaml"
    nothing.write_text("kind: ConfigMap\n")
    code, _, err = await run("plan", *flags(stack), "-f", str(nothing))
    assert (code, "has no Service" in err) == (1, True)
    assert (await run("plan", "--no-such-flag"))[0] == 1
    assert (await run("plan", "--cloud-provider=nobody"))[0] == 1
