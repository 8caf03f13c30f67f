"""A change that is refused keeps what served before serving, and its nodes are kept up to date."""

import pytest

from tests.harness import objects
from tests.harness.cloud import targets
from tests.harness.stack import Stack, answer

WRONG = {"ccm-lb.dev/proxy-protocol": "v9"}
RIGHT = {"ccm-lb.dev/proxy-protocol": None}


async def told(stack: Stack, name: str) -> int:
    """How often the user was told that the Service failed."""
    found = await stack.kube.list("events", stack.namespace)
    mine = [one for one in found if one["involvedObject"]["name"] == name and one["reason"] == "SyncLoadBalancerFailed"]
    return sum(one["count"] for one in mine)


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a restart"])
async def test_a_wrong_annotation_does_not_keep_new_nodes_from_a_load_balancer(
    stack: Stack, *, restarted: bool
) -> None:
    for name in ("n1", "n2"):
        await stack.add_node(name)
    made = await stack.create(objects.service("web"))
    uid = made["metadata"]["uid"]
    await stack.serve(made, "n1", "n2", "n3")
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.wait_served("web")
        await stack.wait_balanced(uid, lambda one: targets(one) == stack.servers("n1", "n2"))
        await stack.patch("web", {"metadata": {"annotations": WRONG}})
        await stack.wait_event("web", "SyncLoadBalancerFailed")
        if restarted:
            await controller.terminate()
            await controller.start_ready()
        await stack.add_node("n3")
        await stack.wait_balanced(uid, lambda one: targets(one) == stack.servers("n1", "n2", "n3"))
        since, often = await stack.cloud.position(), await told(stack, "web")
        await stack.remove_node("n1")
        await stack.wait_balanced(uid, lambda one: targets(one) == stack.servers("n2", "n3"))
        served = await stack.get("web")
        assert await answer(served) in ("n2", "n3")
        assert await told(stack, "web") == often, "nothing that was told has changed"
        await stack.cloud.verify(since, exactly=1, applied=True, method="PATCH")
        await stack.patch("web", {"metadata": {"annotations": RIGHT}})
        await stack.remove_node("n2")
        await stack.wait_balanced(uid, lambda one: targets(one) == stack.servers("n3"))
        assert objects.ingress(await stack.get("web")) == objects.ingress(served)
