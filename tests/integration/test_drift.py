"""Load balancers that somebody changes in the cloud, and a restart that has nothing to do, by the controller as a process."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import networks, objects
from tests.harness.cloud import Fakecloud, targets
from tests.harness.stack import SETTLE, Stack

OFTEN = "--drift-period=2s"
MANY = 1000
LISTENER = {"protocol": "TCP", "port": 18080, "name": "http"}

# At a time, since who changes a load balancer again and again is slowed.
CHANGES: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"name": "mine", "targets": [], "sourceRanges": ["10.0.0.0/8"], "healthCheck": {"protocol": "tcp", "port": 9}},
        [
            "name is mine instead of",
            "targets is without",
            "sourceRanges is with 10.0.0.0/8",
            "healthCheck.port is 9 instead of not set",
        ],
    ),
    (
        {"listeners": [{**LISTENER, "targetPort": 1, "proxyProtocol": "v2"}]},
        ["listeners[TCP/18080].targetPort is 1 instead of", "listeners[TCP/18080].proxyProtocol is v2 instead of none"],
    ),
    (
        {"listeners": [{**LISTENER, "port": 18099, "targetPort": 1}]},
        ["listeners is without TCP/18080 and with TCP/18099"],
    ),
]


def described(load_balancer: dict[str, Any] | None) -> dict[str, Any]:
    assert load_balancer is not None
    return {name: load_balancer[name] for name in ("name", "listeners", "targets", "sourceRanges", "healthCheck")}


async def wait_told(stack: Stack, said: str) -> str:
    """The message of the event that says so."""
    found: list[str] = []
    async with asyncio.timeout(SETTLE):
        while not (
            found := [
                text for _, why, text in await stack.events("web") if why == "LoadBalancerDrifted" and said in text
            ]
        ):
            await asyncio.sleep(0.1)
    return found[0]


async def test_whatever_is_changed_in_the_cloud_is_put_back_and_told(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller(OFTEN) as controller:
        await controller.start_ready()
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait_served("web")
        load_balancer = await stack.wait_balanced(uid, lambda one: one["targets"])
        before = described(load_balancer)
        for change, said in CHANGES:
            await stack.cloud.request("PATCH", f"/v1/load-balancers/{load_balancer['id']}", change)
            told = await wait_told(stack, said[0])
            assert [one for one in said if one not in told] == []
            assert told.endswith("the Service wins: it was put back as the Service asks")
            await stack.wait_balanced(uid, lambda one: described(one) == before)
        metrics = await controller.metrics()
        assert metrics['ccm_lb_drift_total{action="repaired"}'] == len(CHANGES)


async def test_a_load_balancer_that_is_deleted_in_the_cloud_is_made_again(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller(OFTEN) as controller:
        await controller.start_ready()
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait_served("web")
        first = await stack.wait_balanced(uid, lambda one: one["targets"])
        await stack.cloud.request("DELETE", f"/v1/load-balancers/{first['id']}")
        await wait_told(stack, "the load balancer is missing")
        again = await stack.wait_balanced(uid, lambda one: one["id"] != first["id"])
        address = again["addresses"][0]["address"]
        await stack.wait("web", lambda one: [entry["ip"] for entry in objects.ingress(one)] == [address])


async def test_reported_only_the_cloud_is_not_written_to(stack: Stack) -> None:
    await stack.add_node("n1")
    async with stack.controller(OFTEN, "--drift=report") as controller:
        await controller.start_ready()
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait_served("web")
        load_balancer = await stack.wait_balanced(uid, lambda one: one["targets"])
        position = await stack.cloud.position()
        await stack.cloud.request("PATCH", f"/v1/load-balancers/{load_balancer['id']}", {"targets": []})
        await wait_told(stack, "the cloud wins: --drift=report leaves it so")
        await stack.wait("web", lambda one: "ChangedInCloud" in str((one or {})["status"].get("conditions")))
        assert targets(await stack.cloud.load_balancer(uid)) == []
        await stack.cloud.verify_nothing_written(position)


@contextlib.asynccontextmanager
async def crowded(stack: Stack, directory: Path) -> AsyncIterator[Stack]:
    """The same cluster with a cloud that has addresses for a thousand load balancers."""
    with contextlib.ExitStack() as reserved:
        first, *rest = (reserved.enter_context(networks.reserved("127.86")) for _ in range(MANY // 250 + 1))
        more = [f"--pool={network}.0/24" for network in rest]
        async with Fakecloud(directory, *more, pool=f"{first}.0/24") as cloud:
            yield dataclasses.replace(stack, cloud=cloud)


@pytest.mark.timeout(300)
async def test_a_restart_with_a_thousand_healthy_services_reads_the_cloud_in_pages(
    stack: Stack, tmp_path: Path
) -> None:
    directory = tmp_path / "crowded"
    directory.mkdir()
    async with crowded(stack, directory) as here:
        await here.add_node("n1")
        for first in range(0, MANY, 50):
            names = [f"web-{number}" for number in range(first, first + 50)]
            await asyncio.gather(*(here.create(objects.service(name)) for name in names))
        async with here.controller() as controller:
            await controller.start_ready()
            async with asyncio.timeout(200):
                while (await controller.metrics()).get('ccm_lb_services{state="served"}', 0) < MANY:
                    await asyncio.sleep(0.5)
            await controller.terminate()
        events = len(await here.kube.list("events", here.namespace))
        position = await here.cloud.position()
        async with here.controller(name="second") as controller:
            await controller.start_ready()
            async with asyncio.timeout(100):
                while (await controller.metrics()).get(
                    'ccm_lb_reconcile_total{operation="ensure",outcome="success"}', 0
                ) < MANY:
                    await asyncio.sleep(0.2)
            metrics = await controller.metrics()
        calls = await here.cloud.journal(since=str(position))
        print(f"\nrestart with {MANY} Services: {len(calls)} requests to the cloud")
        assert len(calls) <= 20
        assert [one for one in calls if one["method"] != "GET"] == []
        assert len(await here.kube.list("events", here.namespace)) == events
        writes = [
            name for name in metrics if name.startswith("rest_client_requests_total") and 'method="PATCH"' in name
        ]
        assert not writes
