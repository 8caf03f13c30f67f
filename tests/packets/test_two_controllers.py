"""Two installations in one cluster, each for its own class: the lab always has them."""

import pytest

from tests.packets.cluster import NAMESPACE
from tests.packets.lab import Lab, Served


async def told(served: Served) -> dict[str, int]:
    """How often each thing was said of the Service, by reason."""
    events = await served.lab.kube.list("events", NAMESPACE, fieldSelector=f"involvedObject.uid={served.uid}")
    return {one["reason"]: one["count"] for one in events}


@pytest.mark.scenario("B84")
async def test_neither_takes_the_finalizer_of_the_other_for_its_own(lab: Lab) -> None:
    """Both call it by the same name, since every cloud controller does; taken off, it would be put on again, without end."""
    async with (
        lab.service("Proxy", protocols=("TCP", "UDP")) as one,
        lab.service("VIP", cloud="router", protocols=("TCP", "UDP")) as other,
        # Whoever has served these has seen the first two: the watch shows them in order.
        lab.service("Proxy"),
        lab.service("VIP", cloud="router"),
    ):
        for served in (one, other):
            said = await told(served)
            assert (said["EnsuringLoadBalancer"], said["EnsuredLoadBalancer"]) == (1, 1)
            assert "DeletedLoadBalancer" not in said
            assert (await served.get())["metadata"]["finalizers"] == ["service.kubernetes.io/load-balancer-cleanup"]
