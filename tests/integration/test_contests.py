"""Another one that undoes what the controller does, again and again: it is answered once at once, then rarely, and its name is told."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.controlplane.kube import KubeError
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match
from tests.harness import objects
from tests.harness.stack import FINALIZER, Stack

Json = objects.Json
PAUSES = 15.0  # seconds from our first answer to the third
WRITES = Match(method="PATCH", path="/services/web/status$")


@contextlib.asynccontextmanager
async def answering(stack: Stack, undo: Callable[[Json], Awaitable[object] | None]) -> AsyncIterator[list[Json]]:
    """Somebody who watches Services and undoes at once what it sees, inside the block; what it was moved by."""
    answered: list[Json] = []

    async def follow() -> None:
        while True:
            async for event in stack.kube.watch("services", stack.namespace):
                act = undo(event["object"])
                if event["type"] != "DELETED" and act is not None:
                    with contextlib.suppress(KubeError):
                        await act
                    answered.append(event["object"])

    task = asyncio.create_task(follow())
    try:
        yield answered
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def metric(stack_metrics: str, start: str) -> float:
    return sum(float(line.split()[-1]) for line in stack_metrics.splitlines() if line.startswith(start))


def adds_ports(stack: Stack) -> Callable[[Json], Awaitable[object] | None]:
    def undo(service: Json) -> Awaitable[object] | None:
        entries = objects.ingress(service)
        if not entries or "ports" in entries[0]:
            return None
        ports = [{"port": 18080, "protocol": "TCP"}]
        body = {"status": {"loadBalancer": {"ingress": [{**one, "ports": ports} for one in entries]}}}
        return stack.kube.patch(
            "services", "web", body, stack.namespace, kind="merge", subresource="status", manager="port-painter"
        )

    return undo


def has_address_of_its_own(stack: Stack) -> Callable[[Json], Awaitable[object] | None]:
    def undo(service: Json) -> Awaitable[object] | None:
        entries = objects.ingress(service)
        if not entries or entries[0].get("ip") == "192.0.2.1":
            return None
        body = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}}}
        return stack.kube.patch(
            "services", "web", body, stack.namespace, kind="merge", subresource="status", manager="other-lb"
        )

    return undo


def takes_the_finalizer(stack: Stack) -> Callable[[Json], Awaitable[object] | None]:
    def undo(service: Json) -> Awaitable[object] | None:
        if FINALIZER not in service["metadata"].get("finalizers", []) or not objects.ingress(service):
            return None
        body = {"metadata": {"finalizers": None, "annotations": None}}
        return stack.kube.patch("services", "web", body, stack.namespace, kind="merge", manager="stripper")

    return undo


@pytest.mark.parametrize(
    ("party", "named", "field"),
    [
        pytest.param(adds_ports, "port-painter", "status", id="ports are added to the status"),
        pytest.param(has_address_of_its_own, "other-lb", "status", id="another controller publishes"),
        pytest.param(takes_the_finalizer, "", "finalizer", id="the finalizer is taken off"),
    ],
)
async def test_another_writer_is_answered_at_once_then_rarely_and_told_of_once(
    stack: Stack,
    api_proxy: FaultProxy,
    party: Callable[[Stack], Callable[[Json], Awaitable[object] | None]],
    named: str,
    field: str,
) -> None:
    await stack.add_node("n1")
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        ours = objects.ingress(await stack.wait_served("web"))
        api_proxy.forget()
        position = await stack.cloud.position()
        async with answering(stack, party(stack)) as answered:
            await api_proxy.wait_for(WRITES)
            began = time.monotonic()
            await api_proxy.wait_for(WRITES, 3)
            assert time.monotonic() - began > PAUSES - 1, "two pauses, of 5 and 10 seconds"
        assert len(answered) >= 3
        await stack.cloud.verify(position)
        warnings = [one for one in await stack.events("web") if one[1] == "LoadBalancerContested"]
        assert len(warnings) == 1, warnings
        assert warnings[0][0] == "Warning"
        assert named in warnings[0][2]
        text = (await controller.get("/metrics"))[1]
        assert await metric(text, f'ccm_lb_contests_total{{field="{field}"}}') == 1
        restored = await stack.wait(
            "web",
            lambda one: objects.ingress(one) == ours and FINALIZER in (one or {})["metadata"].get("finalizers", []),
        )
        assert objects.ingress(restored) == ours
