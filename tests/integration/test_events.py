"""What users read, when writing it is slow, hangs, or begins anew."""

import random

from tests.faultproxy.effects import Delay, Stall
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import objects
from tests.harness.stack import Stack

WRITES = Match(method="POST|PATCH", path="/events")


async def test_events_are_stored_in_the_order_in_which_they_happened(stack: Stack, api_proxy: FaultProxy) -> None:
    chance = random.Random(7)
    for _ in range(60):
        api_proxy.add(Rule(Delay(chance.random()), WRITES, nth=1 + chance.randrange(120), times=1))
    await stack.add_node("n1")
    names = [f"web-{number}" for number in range(12)]
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        for number, name in enumerate(names):
            await stack.create(objects.service(name, {"http": 18100 + number}))
        for name in names:
            await stack.wait_served(name)
            await stack.wait_event(name, "IPModeChosen")
        for name in names:
            found = await stack.kube.list("events", stack.namespace)
            found.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
            told = [one["reason"] for one in found if one["involvedObject"]["name"] == name]
            assert told == ["EnsuringLoadBalancer", "EnsuredLoadBalancer", "IPModeChosen"]


async def test_a_namespace_whose_event_writes_hang_holds_no_other_one_up(stack: Stack, api_proxy: FaultProxy) -> None:
    other = f"{stack.namespace}-hangs"
    await stack.kube.create("namespaces", {"metadata": {"name": other}})
    hanging = Match(method="POST|PATCH", path=f"/namespaces/{other}/events")
    api_proxy.add(Rule(Stall(), hanging))
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        try:
            for number in range(12):
                await stack.kube.create("services", objects.service(f"web-{number}", {"http": 18100 + number}), other)
            await api_proxy.wait_for(hanging, 4)
            await stack.create(objects.service("web"))
            # A write that hangs is given up after 10 seconds: by then the others have long been written.
            await stack.wait_event("web", "IPModeChosen", timeout=9)
        finally:
            for number in range(12):
                body = {"metadata": {"finalizers": None}, "spec": {"type": "ClusterIP"}}
                await stack.kube.patch("services", f"web-{number}", body, other, kind="merge")
                await stack.kube.delete("services", f"web-{number}", other)
