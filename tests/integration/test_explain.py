"""`ccm-lb explain` of a Service on a genuine API server, whose load balancer stands in a genuine fakecloud."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness import objects
from tests.harness.commands import run
from tests.harness.stack import Stack


async def explained(stack: Stack, name: str, *flags: str) -> dict[str, Any]:
    told = ("--cloud-provider=fakecloud", f"--cloud-config={stack.cloud.config()}", f"--kubeconfig={stack.kubeconfig}")
    allowed = "--allow-addresses=loopback"
    code, out, err = await run("explain", f"{stack.namespace}/{name}", "-o", "json", allowed, *told, *flags)
    assert code == 0, err
    said: dict[str, Any] = json.loads(out)
    return said


async def test_decisions_nodes_and_the_cloud_beside_what_is_wanted(stack: Stack) -> None:
    await stack.add_node("n1")
    await stack.add_node("n2")
    label = {"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": "true"}}}
    await stack.kube.patch("nodes", "n2", label, kind="merge")
    async with stack.controller("--drift=off") as controller:
        await controller.start_ready()
        created = await stack.create(objects.service("web"))
        await stack.wait_served("web")
        said = await explained(stack, "web")
        assert [(one["question"], one["answer"]) for one in said["decisions"]] == [
            ("this controller", "yes"),
            ("load balancer", "wanted"),
            ("finalizer", "there"),
        ]
        assert said["nodes"]["in"] == ["n1"]
        assert "exclude-from-external-load-balancers" in said["nodes"]["out"]["n2"]
        assert (said["cloud"]["notCompared"], said["cloud"]["differences"]) == (None, [])
        assert said["cloud"]["addresses"] == [said["addresses"][0]["ip"]]

        # Somebody changes it behind our back.
        balancer = await stack.cloud.load_balancer(created["metadata"]["uid"])
        assert balancer is not None
        await stack.cloud.request("PATCH", f"/v1/load-balancers/{balancer['id']}", {"name": "mine"})
        before = len(await stack.cloud.journal())
        (difference,) = (await explained(stack, "web"))["cloud"]["differences"]
        assert (difference["setting"], difference["actual"]) == ("name", "mine")
        asked = (await stack.cloud.journal())[before:]
        assert {one["method"] for one in asked} <= {"GET"}, "an explanation only reads"


async def test_a_cloud_that_is_away_does_not_keep_the_rest_from_being_explained(stack: Stack, tmp_path: Path) -> None:
    await stack.add_node("n1")
    await stack.create(objects.service("web"))
    away = tmp_path / "away.yaml"
    away.write_text("url: http://127.0.0.1:1\ntoken: x\n")
    said = await explained(stack, "web", f"--cloud-config={away}")
    assert said["nodes"]["in"] == ["n1"]
    assert "127.0.0.1:1" in said["cloud"]["notCompared"]
    assert said["cloudNotAsked"]


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_load_balancer_that_is_missing_is_said(stack: Stack, form: str) -> None:
    await stack.add_node("n1")
    await stack.create(objects.service("web"))
    told = ("--cloud-provider=fakecloud", f"--cloud-config={stack.cloud.config()}", f"--kubeconfig={stack.kubeconfig}")
    _, out, err = await run("explain", f"{stack.namespace}/web", "-o", form, *told)
    if form == "text":
        assert "in the cloud: the load balancer is missing" in out, err
        assert "nodes that get traffic: n1" in out
    else:
        assert json.loads(out)["cloud"]["differences"][0]["desired"] == "present"
