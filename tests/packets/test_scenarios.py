"""Faults of other load balancers and their controllers that only traffic shows, each played once."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import pytest

from tests.packets import receivers
from tests.packets.clients import UnservedError, ask, http
from tests.packets.cluster import Json
from tests.packets.lab import Lab, Served
from tests.packets.netns import Namespace
from tests.packets.receivers import Receiver
from tests.packets.rows import OUTSIDE
from tests.packets.topology import NODES, lan_addresses, node_of, second_client_addresses

SERVERS = ("server1", "server2")
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
HEALTH_CHECK_PROTOCOL = "ccm-lb.dev/health-check-protocol"
SETTLE = 60.0  # seconds until a test gives up waiting for what has to happen; nothing is promised to be that slow
IN_VAIN = 1.2  # seconds until a client gives up that has to be refused

# What is asked here of kube-proxy is the same in each of its modes.
pytestmark = pytest.mark.parametrize("lab", ["nftables"], indirect=True)


# ---- source ranges


@contextlib.asynccontextmanager
async def refusing(served: Served, times: int) -> AsyncIterator[str]:
    """The cloud answers that many changes of this load balancer with 503; the fault's id."""
    cloud = served.lab.clouds[served.cloud]
    match = {"methods": ["PATCH"], "owner": served.uid}
    body = {"match": match, "effect": {"kind": "status", "status": 503}, "times": times}
    fault = (await cloud.request("POST", "/v1/faults", body))["id"]
    try:
        yield fault
    finally:
        await cloud.request("DELETE", f"/v1/faults/{fault}")


@pytest.mark.scenario("B33")
async def test_wider_source_ranges_shut_nobody_out_for_a_moment_though_the_cloud_fails_three_times(lab: Lab) -> None:
    allowed, second = lan_addresses(OUTSIDE)[0], second_client_addresses()[0]
    narrow, wide = [f"{allowed}/32"], [f"{allowed}/32", f"{second}/32"]
    async with lab.service("Proxy", loadBalancerSourceRanges=narrow) as served, refusing(served, 3) as fault:
        address, client = await served.address(), lab.hosts[OUTSIDE]
        with pytest.raises(UnservedError):
            await ask(client, address, 80, source=second, patience=IN_VAIN)
        generation = (await served.balancer())["generation"]
        await served.patch({"spec": {"loadBalancerSourceRanges": wide}})
        async with asyncio.timeout(SETTLE):
            while (balancer := await served.balancer())["sourceRanges"] != wide:
                assert balancer["sourceRanges"] == narrow
                await ask(client, address, 80, source=allowed)
        assert balancer["generation"] == generation + 1, "a change in two steps has a moment between them"
        for source in (allowed, second):
            await ask(client, address, 80, source=source)
        assert [one["status"] for one in await lab.clouds["balancer"].journal(fault=fault)] == [503] * 3


@pytest.mark.scenario("B33")
async def test_a_change_of_something_else_leaves_the_source_ranges_alone(lab: Lab) -> None:
    allowed = lan_addresses(OUTSIDE)[0]
    async with lab.service(
        "Proxy", loadBalancerSourceRanges=[f"{allowed}/32"], externalTrafficPolicy="Local"
    ) as served:
        address = await served.address()
        await served.patch({"metadata": {"annotations": {HEALTH_CHECK_PROTOCOL: "tcp"}}})
        async with asyncio.timeout(SETTLE):
            while (balancer := await served.balancer())["healthCheck"]["protocol"] != "tcp":
                assert balancer["sourceRanges"] == [f"{allowed}/32"]
                await ask(lab.hosts[OUTSIDE], address, 80, source=allowed)
        assert balancer["sourceRanges"] == [f"{allowed}/32"]


# ---- probes and the PROXY header


@pytest.mark.scenario("B75")
@pytest.mark.parametrize("policy", ["Local", "Cluster"])
@pytest.mark.parametrize("name", receivers.NAMES)
async def test_probes_find_a_receiver_of_the_proxy_protocol_healthy_and_are_no_error_to_it(
    lab: Lab, tmp_path: Path, name: str, policy: str
) -> None:
    if receivers.missing(name):
        pytest.skip(f"{name} is missing: apt-get install {name}")
    expected = {"node1": True, "node2": policy == "Cluster"}
    async with Receiver(name, lab.hosts["server1"], tmp_path) as receiver:
        said = len(receiver.log.read_text())  # until it listened, it was asked without a header
        async with lab.service(
            "Proxy",
            pods=("server1",),
            target_port=receivers.PORT,
            proxy_protocol="v2",
            externalTrafficPolicy=policy,
        ) as served:
            balancer = await served.wait_balancer(lambda one: healthy(one) == expected)
            assert balancer["healthCheck"]["protocol"] == ("http" if policy == "Local" else "tcp")
            address, client = await served.address(), lan_addresses(OUTSIDE)[0]
            assert await http(lab.hosts[OUTSIDE], address, 80, "/") == (200, f"{client} {address}")
            assert healthy(await served.balancer()) == expected
        for complaint in ("broken header", "[error]"):
            assert complaint not in receiver.log.read_text()[said:]


def healthy(balancer: Json) -> dict[str, bool | None]:
    return {one["target"]: one["healthy"] for one in balancer["status"]["targets"]}


# ---- UDP flows


class Unpausing:
    """A UDP client that asks ten times a second from one port, whatever happens; `async with` starts and ends it."""

    def __init__(self, host: Namespace, address: str, source: str) -> None:
        self._socket = host.bound(source, 4000, socket.SOCK_DGRAM)
        self._socket.connect((address, 80))
        self._answers: list[str] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(work) for work in (self._send(), self._receive())]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._socket.close()

    async def answered_by(self, *pods: str) -> str:
        """The pod that gave the next answer, once it is one of these."""
        known = len(self._answers)
        try:
            async with asyncio.timeout(SETTLE):
                while not (new := [pod for pod in self._answers[known:] if pod in pods]):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"none of {pods} in {SETTLE:g} s, but {self._answers[known:][-5:]}") from None
        return new[0]

    async def _send(self) -> None:
        while True:
            with contextlib.suppress(OSError):  # nobody listens there, which is told of the datagram before
                self._socket.send(b"who\n")
            await asyncio.sleep(0.1)

    async def _receive(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                self._answers.append(json.loads(await loop.sock_recv(self._socket, 4096))["pod"])
            except ConnectionRefusedError:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def flowing(lab: Lab) -> AsyncIterator[tuple[Served, Unpausing]]:
    """A Service for UDP, whose pods tell which node a datagram came by, and its client."""
    source = lan_addresses(OUTSIDE)[0]
    async with (
        lab.service("Proxy", protocols=("TCP", "UDP"), externalTrafficPolicy="Local") as served,
        Unpausing(lab.hosts[OUTSIDE], await served.address(), source) as client,
    ):
        yield served, client


def without(pod: str) -> str:
    (other,) = set(SERVERS) - {pod}
    return other


@pytest.mark.scenario("B88")
async def test_a_udp_client_that_never_pauses_leaves_a_node_that_is_no_target_any_more(lab: Lab) -> None:
    async with flowing(lab) as (served, client):
        gone = node_of(pod := await client.answered_by(*SERVERS))
        try:
            await lab.kube.patch("nodes", gone, {"metadata": {"labels": {EXCLUDED: "true"}}})
            await served.wait_balancer(lambda one: gone not in healthy(one))
            await client.answered_by(without(pod))
        finally:
            await lab.kube.patch("nodes", gone, {"metadata": {"labels": {EXCLUDED: None}}})
        await served.wait_balancer(lambda one: set(healthy(one)) == set(NODES))
        await client.answered_by(*SERVERS)


@pytest.mark.scenario("B88")
async def test_a_udp_client_that_never_pauses_leaves_a_node_that_its_pod_has_left(lab: Lab) -> None:
    async with flowing(lab) as (served, client):
        pod = await client.answered_by(*SERVERS)
        await served.move(without(pod))
        await client.answered_by(without(pod))
        await served.move(*SERVERS)
        await client.answered_by(*SERVERS)


@pytest.mark.scenario("B88")
async def test_a_udp_client_that_asks_before_there_is_a_listener_is_answered_once_there_is(lab: Lab) -> None:
    async with flowing(lab) as (served, client):
        ports = (await served.get())["spec"]["ports"]
        await served.patch({"spec": {"ports": [one for one in ports if one["protocol"] == "TCP"]}})
        await served.wait_balancer(lambda one: {each["protocol"] for each in one["listeners"]} == {"TCP"})
        await asyncio.sleep(0.3)  # three datagrams that nobody takes
        await served.patch({"spec": {"ports": ports}})
        await client.answered_by(*SERVERS)
