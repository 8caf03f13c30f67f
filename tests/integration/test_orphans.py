"""Load balancers that no Service wants, listed and deleted by the command and by the controller."""

import asyncio
import json
import sys
from typing import Any, NamedTuple

from tests.harness import objects
from tests.harness.stack import Stack

STRIPPED = {"metadata": {"finalizers": None}, "spec": {"type": "ClusterIP", "externalTrafficPolicy": None}}


class Done(NamedTuple):
    code: int
    out: str
    err: str


async def orphans(stack: Stack, *arguments: str, answer: str = "") -> Done:
    """`ccm-lb orphans` as an operator runs it."""
    command = [sys.executable, "-m", "ccm_lb", "orphans", f"--kubeconfig={stack.plane.kubeconfig}"]
    settings = ["--cloud-provider=fakecloud", f"--cloud-config={stack.cloud.config()}", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command,
        *settings,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(answer.encode())
    return Done(process.returncode or 0, out.decode(), err.decode())


async def left_behind(stack: Stack) -> dict[str, Any]:
    """A load balancer whose Service lost finalizer and type while no controller ran; another's is served."""
    async with stack.controller() as controller:
        await controller.start_ready()
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait_served("web")
        await stack.create(objects.service("served", {"http": 18090}))
        await stack.wait_served("served")
        await controller.terminate()
    await stack.patch("web", STRIPPED)
    return await stack.wait_balanced(uid, lambda one: one["state"] == "active")


async def foreign(stack: Stack) -> dict[str, Any]:
    """Another cluster's, of a Service that nobody has."""
    owner = {"cluster": "another", "uid": "5e7f1c3a-0000-4000-8000-00000000000f"}
    listener = {"protocol": "TCP", "port": 18070, "targetPort": 1}
    return await stack.cloud.request(
        "POST", "/v1/load-balancers", {"name": "theirs", "owner": owner, "listeners": [listener]}
    )


async def test_they_are_listed_and_deleted_after_a_question(stack: Stack) -> None:
    assert (await orphans(stack)).code == 0
    load_balancer, theirs = await left_behind(stack), await foreign(stack)
    address = load_balancer["addresses"][0]["address"]

    listed = await orphans(stack)
    assert listed.code == 3, listed.err
    assert len(listed.out.splitlines()) == 2
    said = f"its Service {stack.namespace}/web is of type ClusterIP and has no finalizer"
    assert all(word in listed.out for word in (address, load_balancer["id"], said))

    shown = await orphans(stack, "--output=json")
    assert shown.code == 3
    [one] = json.loads(shown.out)["orphans"]
    assert (one["addresses"], one["service"]) == ([address], f"{stack.namespace}/web")

    assert (await orphans(stack, "--delete", answer="n\n")).code == 3
    assert len(await stack.cloud.load_balancers()) == 3
    deleted = await orphans(stack, "--delete", answer="y\n")
    assert (deleted.code, f"deleted {load_balancer['id']}" in deleted.out) == (0, True)
    left = {one["id"] for one in await stack.cloud.load_balancers()}
    assert load_balancer["id"] not in left
    assert theirs["id"] in left
    assert len(left) == 2


async def test_a_service_that_is_gone_leaves_one_that_scripts_delete(stack: Stack) -> None:
    load_balancer = await left_behind(stack)
    await stack.delete("web")
    deleted = await orphans(stack, "--delete", "--yes", "--output=json")
    assert deleted.code == 0, deleted.err
    found = json.loads(deleted.out)
    assert ([one["id"] for one in found["deleted"]], found["orphans"]) == ([load_balancer["id"]], [])
    assert (await orphans(stack, "--yes")).code == 2
    assert (await orphans(stack, "--drift-period=never")).code == 2


async def test_without_a_cloud_or_a_cluster_nothing_is_said_to_be_orphaned(stack: Stack) -> None:
    await stack.cloud.kill()
    failed = await orphans(stack)
    assert (failed.code, failed.out) == (1, "")
    await stack.cloud.start()


async def test_the_controller_deletes_them_if_it_is_told_to(stack: Stack) -> None:
    load_balancer, theirs = await left_behind(stack), await foreign(stack)
    async with stack.controller("--drift-period=1s", "--delete-orphans-after=2s") as controller:
        await controller.start_ready()
        await controller.wait_logged("a load balancer is orphaned")
        async with asyncio.timeout(60):
            while load_balancer["id"] in {one["id"] for one in await stack.cloud.load_balancers()}:
                await asyncio.sleep(0.1)
        assert theirs["id"] in {one["id"] for one in await stack.cloud.load_balancers()}
        async with asyncio.timeout(60):
            while (await controller.metrics())["ccm_lb_orphans_deleted_total"] != 1:
                await asyncio.sleep(0.1)
        assert len(await stack.cloud.load_balancers()) == 2


async def test_the_controller_counts_them_and_leaves_them_alone_by_default(stack: Stack) -> None:
    await left_behind(stack)
    async with stack.controller("--drift-period=1s") as controller:
        await controller.start_ready()
        async with asyncio.timeout(60):
            while (await controller.metrics())["ccm_lb_orphaned_load_balancers"] != 1:
                await asyncio.sleep(0.1)
        assert len(await stack.cloud.load_balancers()) == 2
