"""What the controller leaves alone: other people's objects and fields, and the servers while there is nothing to do."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest

from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match
from tests.harness import objects
from tests.harness.stack import FINALIZER, SETTLE, Stack

Json = dict[str, Any]
KOPFS = "kopf.zalando.org/KopfFinalizerMarker"
FOREIGN = {
    "finalizers": [KOPFS, "example.com/guard"],
    "labels": {"example.com/team": "a"},
    "annotations": {"kopf.zalando.org/last-handled-configuration": '{"spec":{}}\n', "example.com/note": "as it is"},
}


async def with_foreign_status(stack: Stack, name: str) -> Json:
    condition = {
        "type": "example.com/Checked",
        "status": "True",
        "reason": "Seen",
        "message": "by somebody else",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    body = {"status": {"conditions": [condition]}}
    return await stack.kube.patch("services", name, body, stack.namespace, kind="merge", subresource="status")


def without_ours(service: Json) -> Json:
    """The Service without what belongs to the controller: its finalizer, the addresses, and the server's book-keeping."""
    metadata = {
        name: value for name, value in service["metadata"].items() if name not in ("resourceVersion", "managedFields")
    }
    metadata["finalizers"] = [name for name in metadata["finalizers"] if name != FINALIZER]
    status = {name: value for name, value in service["status"].items() if name != "loadBalancer"}
    return {**service, "metadata": metadata, "status": status}


async def test_a_service_that_is_not_ours_stays_byte_for_byte_what_it_was(stack: Stack) -> None:
    async with stack.controller() as controller:
        await stack.create(objects.service("internal", metadata=FOREIGN, type="ClusterIP"))
        await stack.create(objects.service("theirs", metadata=FOREIGN, loadBalancerClass="example.com/theirs"))
        guarded = {**FOREIGN, "finalizers": [FINALIZER, KOPFS]}
        await stack.create(objects.service("guarded", metadata=guarded, loadBalancerClass="example.com/theirs"))
        before = [await with_foreign_status(stack, name) for name in ("internal", "theirs", "guarded")]
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await controller.terminate()
        assert [await stack.get(name) for name in ("internal", "theirs", "guarded")] == before


async def test_in_a_service_that_is_ours_only_finalizer_and_addresses_are_touched(stack: Stack) -> None:
    async with stack.controller() as controller:
        await stack.create(objects.service("web", metadata=FOREIGN))
        before = await with_foreign_status(stack, "web")
        await controller.start_ready()
        served = await stack.wait_served("web")
        assert without_ours(served) == without_ours(before)
        await stack.delete("web")
        deleted = await stack.wait("web", lambda one: FINALIZER not in (one or {})["metadata"]["finalizers"])
        assert deleted["metadata"]["finalizers"] == FOREIGN["finalizers"]
        assert deleted["status"]["conditions"] == before["status"]["conditions"]
        await stack.wait_unbalanced()


async def test_a_service_under_deletion_is_never_ensured(stack: Stack) -> None:
    async with stack.controller() as controller:
        await stack.create(objects.service("web", metadata=FOREIGN))
        await stack.delete("web")  # held by the others' finalizers
        await controller.start_ready()
        await stack.create(objects.service("later", {"http": 18090}))
        await stack.wait_served("later")
        assert FINALIZER not in (await stack.get("web"))["metadata"]["finalizers"]
        assert await stack.events("web") == []
        assert len(await stack.cloud.load_balancers()) == 1


LEASE = Match(path="/leases/cloud-controller-manager$")
WORK = Match(watch=False, path="^(?!.*/leases/)")


async def wait_idle(proxy: FaultProxy) -> None:
    """Wait until five seconds pass without work: the resync after a list is due two seconds after it."""
    async with asyncio.timeout(SETTLE):
        while True:
            seen = len(proxy.matching(WORK))
            await asyncio.sleep(5)
            if len(proxy.matching(WORK)) == seen:
                return


async def test_an_idle_controller_asks_for_nothing_but_its_lease(stack: Stack, api_proxy: FaultProxy) -> None:
    await stack.add_node("n1")
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await wait_idle(api_proxy)
        began, position = time.monotonic(), await stack.cloud.position()
        api_proxy.forget()
        await api_proxy.wait_for(LEASE, 6)
        asked = Counter((one.request.method, one.request.path) for one in api_proxy.matching(Match(watch=False)))
        lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
        assert set(asked) == {("PUT", lease)}
        assert time.monotonic() - began > 4 * 2, "one renewal every 2 s, of which the first may have been under way"
        await stack.cloud.verify(position)


@pytest.mark.scenario("B07")
async def test_a_restart_with_everything_in_order_writes_nothing(stack: Stack, api_proxy: FaultProxy) -> None:
    await stack.add_node("n1")
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        for number in range(20):
            await stack.create(objects.service(f"web-{number}", {"http": 18100 + number}))
        for number in range(20):
            await stack.wait_served(f"web-{number}")
        await controller.terminate()
        api_proxy.forget()
        position = await stack.cloud.position()
        await controller.start_ready()
        await wait_idle(api_proxy)
        await stack.cloud.verify_nothing_written(position)
        await stack.cloud.verify(position, mutating=True)
        read = [one for one in await stack.cloud.journal(since=str(position)) if one["method"] == "GET"]
        assert read, "it looked at what there is"
        written = [
            one.request.path for one in api_proxy.matching(Match(mutating=True)) if "/leases" not in one.request.path
        ]
        assert written == []
