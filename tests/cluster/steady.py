"""What goes on all the time: a Service that nobody changes, with traffic through it, and others that come, change and go."""

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp

from tests.cluster import workloads
from tests.cluster.cluster import Cluster
from tests.controlplane.kube import Kube, KubeError
from tests.harness import objects
from tests.harness.cloud import Fakecloud
from tests.packets.clients import Stream

_PAUSE = 0.3  # seconds between two changes


@dataclasses.dataclass
class Steady:
    """Grows while it runs."""

    traffic: Stream
    served: int = 0

    async def wait_served(self, count: int, timeout: float = 90.0) -> None:
        """Until so many more of the Services that come have been given an address."""
        goal = self.served + count
        try:
            async with asyncio.timeout(timeout):
                while self.served < goal:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{self.served} of {goal} Services served after {timeout:g} s") from None


@contextlib.asynccontextmanager
async def going_on(cluster: Cluster, kube: Kube, cloud: Fakecloud) -> AsyncIterator[Steady]:
    """
    Both, until the end of the block.

    Then no connection through the Service that nobody changed has failed, and the cloud has one load balancer for each Service there
    is, and has never had a second one.
    """
    since = await cloud.position()
    await kube.create("services", workloads.service("unchanged"), workloads.NAMESPACE)
    [entry] = objects.ingress(await kube.wait_for("services", "unchanged", objects.ingress, workloads.NAMESPACE))
    await workloads.first_answer(cluster.client, entry["ip"])
    async with Stream(cluster.client, entry["ip"], workloads.PORT) as traffic:
        steady = Steady(traffic)
        changes = asyncio.create_task(_changes(kube, steady))
        try:
            await steady.wait_served(2)
            yield steady
            await steady.wait_served(2)
            await traffic.wait_for(20)
        finally:
            changes.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await changes
    await _settled(kube, cloud)
    for one in await kube.list("services", workloads.NAMESPACE, labelSelector="app=web"):
        name = one["metadata"]["name"]
        await kube.delete("services", name, workloads.NAMESPACE)
        await kube.wait_for("services", name, lambda found: found is None, workloads.NAMESPACE)
    await _settled(kube, cloud)
    assert traffic.failures == [], f"{len(traffic.failures)} of {len(traffic.answers)} failed"
    # A second create for the same owner is answered with the first one's, and applies nothing.
    made = [one for one in await cloud.journal(since=str(since)) if one["method"] == "POST" and one["applied"]]
    owners = [one["owner"] for one in made]
    assert owners
    assert len(owners) == len(set(owners)), "a Service has had two load balancers"


async def _changes(kube: Kube, steady: Steady) -> None:
    for number in itertools.count():
        await _come_and_go(kube, steady, f"changed-{number}")


async def _come_and_go(kube: Kube, steady: Steady, name: str) -> None:
    """A Service is made, gets another port, and goes."""
    await _insisted(lambda: kube.create("services", workloads.service(name), workloads.NAMESPACE))
    await asyncio.sleep(_PAUSE)
    port = {"spec": {"ports": [{"port": 81, "targetPort": 8080}]}}
    await _insisted(lambda: kube.patch("services", name, port, workloads.NAMESPACE))
    await kube.wait_for("services", name, objects.ingress, workloads.NAMESPACE, timeout=90.0)
    steady.served += 1
    await asyncio.sleep(_PAUSE)
    await _insisted(lambda: kube.delete("services", name, workloads.NAMESPACE))


async def _insisted(request: Callable[[], Awaitable[object]]) -> None:
    """Until the API server has taken it; one that was killed may have done so without a word."""
    while True:
        try:
            await request()
            return
        except aiohttp.ClientError:
            await asyncio.sleep(0.2)
        except KubeError as error:
            if error.status == 409:  # there already
                return
            if error.status < 500 and error.status != 429:
                raise
            await asyncio.sleep(0.2)


async def _settled(kube: Kube, cloud: Fakecloud) -> None:
    """Until the cloud has a load balancer for each Service and no other."""
    seen: tuple[set[str], list[str]] = (set(), [])
    try:
        async with asyncio.timeout(90.0):
            while True:
                services = await kube.list("services", workloads.NAMESPACE)
                wanted = {one["metadata"]["uid"] for one in services if one["spec"]["type"] == "LoadBalancer"}
                seen = wanted, [one["owner"]["uid"] for one in await cloud.load_balancers()]
                if sorted(seen[1]) == sorted(wanted):
                    return
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"Services and load balancers: {seen}") from None
