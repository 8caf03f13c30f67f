"""A UDP client that never pauses and keeps its port: whose answers it gets while targets come and go."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from tests.fakecloud.clients import DEADLINE, Api, Json, address_of, until
from tests.fakecloud.datagrams import UdpClient, udp_client, udp_server

LBS = "/v1/load-balancers"
A, B = {"address": "127.0.0.1"}, {"address": "127.0.0.2"}
OF = {"a": A, "b": B}
OTHER = {"a": "b", "b": "a"}
PORT = 5353


@dataclass
class Flow:
    """One client of a load balancer with the targets a and b, and who answered it first."""

    api: Api
    item: Json
    client: UdpClient
    first: str

    async def answerer(self) -> str:
        return (await self.client.ask()).partition(" ")[0]

    async def change(self, **fields: object) -> None:
        answer = await self.api.call("PATCH", f"{LBS}/{self.item['id']}", fields)
        assert answer.status == 200, answer


@contextlib.asynccontextmanager
async def flowing(api: Api, **fields: object) -> AsyncIterator[Flow]:
    async with udp_server("a", "127.0.0.1") as port, udp_server("b", "127.0.0.2", port):
        listeners = [{"protocol": "UDP", "port": PORT, "targetPort": port}]
        item = await api.create(**{"listeners": listeners, "targets": [A, B], **fields})
        async with udp_client(address_of(item), PORT) as client:
            yield Flow(api, item, client, (await client.ask()).partition(" ")[0])


@pytest.mark.scenario("B88")
async def test_a_flow_leaves_a_target_that_is_removed_with_its_next_datagram(api: Api) -> None:
    async with flowing(api) as flow:
        other = OTHER[flow.first]
        await flow.change(targets=[OF[other]])
        assert await flow.answerer() == other
        await flow.change(targets=[A, B])
        assert await flow.answerer() == other, "that one is still there"
        await flow.change(targets=[OF[flow.first]])
        assert await flow.answerer() == flow.first


@pytest.mark.scenario("B88")
async def test_a_flow_leaves_a_target_that_is_found_dead_and_stays_when_all_are(api: Api) -> None:
    # What the health check connects to; nobody accepts, so there has to be room for all its connections.
    doors = {"a": socket.create_server(("127.0.0.1", 0), backlog=1000)}
    port = doors["a"].getsockname()[1]
    doors["b"] = socket.create_server(("127.0.0.2", port), backlog=1000)
    check = {"port": port, "intervalSeconds": 0.05, "unhealthyThreshold": 1}
    async with flowing(api, healthCheck=check) as flow:

        async def found(*healthy: bool) -> None:
            async def so() -> bool:
                targets = (await api.get(f"{LBS}/{flow.item['id']}"))["status"]["targets"]
                return tuple(target["healthy"] for target in targets) == healthy

            await until(so)

        with doors[OTHER[flow.first]]:
            with doors[flow.first]:
                await found(True, True)
            await found(flow.first != "a", flow.first != "b")
            assert await flow.answerer() == OTHER[flow.first]
        await found(False, False)
        assert await flow.answerer() == OTHER[flow.first]


@pytest.mark.scenario("B88")
async def test_datagrams_from_before_the_listener_leave_nothing_behind(api: Api) -> None:
    async with udp_server("a") as port:
        tcp = {"port": 8080, "targetPort": port}
        item = await api.create(listeners=[tcp], targets=[A])
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.bind(("127.0.0.1", 0))
            for _ in range(5):
                client.sendto(b"early", (address_of(item), PORT))
            udp = {"protocol": "UDP", "port": PORT, "targetPort": port}
            await api.call("PATCH", f"{LBS}/{item['id']}", {"listeners": [tcp, udp]})
            client.sendto(b"hello", (address_of(item), PORT))
            async with asyncio.timeout(DEADLINE):
                assert await asyncio.get_running_loop().sock_recv(client, 100) == b"a hello"


async def test_a_flow_stays_with_a_target_that_drains(api: Api) -> None:
    async with flowing(api) as flow:
        await flow.change(targets=[{**A, "drain": True}, B] if flow.first == "a" else [A, {**B, "drain": True}])
        assert await flow.answerer() == flow.first


async def test_a_flow_stays_with_a_removed_target_for_the_time_that_it_may_drain(api: Api) -> None:
    async with flowing(api, drainTimeoutSeconds=DEADLINE * 60) as flow:
        await flow.change(targets=[OF[OTHER[flow.first]]])
        assert await flow.answerer() == flow.first


@contextlib.asynccontextmanager
async def plain_sockets(api: Api, **listener: object) -> AsyncIterator[tuple[socket.socket, socket.socket]]:
    """A target's socket and a client's, as the kernel has them: a transport sends no empty datagram."""
    with socket.socket(type=socket.SOCK_DGRAM) as target, socket.socket(type=socket.SOCK_DGRAM) as client:
        target.bind(("127.0.0.1", 0))
        listeners = [{"protocol": "UDP", "port": PORT, "targetPort": target.getsockname()[1], **listener}]
        item = await api.create(listeners=listeners, targets=[A])
        client.connect((address_of(item), PORT))
        for one in (target, client):
            one.settimeout(DEADLINE)
        yield target, client


@pytest.mark.parametrize("slow", [False, True], ids=["at once", "late"])
async def test_empty_datagrams_are_passed_on_both_ways_in_their_order(api: Api, *, slow: bool) -> None:
    if slow:
        await api.call("POST", "/v1/faults", {"effect": {"kind": "slow", "latencySeconds": 0.02}})
    # The first ones come before there is a socket towards the target.
    sent = [b"", b"", b"a", b"", b"b"]
    async with plain_sockets(api) as (target, client):
        for _ in range(2):
            for data in sent:
                client.send(data)
            came = [await asyncio.to_thread(target.recvfrom, 100) for _ in sent]
            assert [data for data, _ in came] == sent
        for data in sent:
            target.sendto(data, came[0][1])
        assert [await asyncio.to_thread(client.recv, 100) for _ in sent] == sent


async def test_a_client_that_sends_only_empty_datagrams_is_not_idle(api: Api) -> None:
    loop = asyncio.get_running_loop()
    async with plain_sockets(api, idleTimeoutSeconds=0.4) as (target, client):
        ports = set()
        until_seconds = loop.time() + 1.5
        while loop.time() < until_seconds:
            client.send(b"")
            ports.add((await asyncio.to_thread(target.recvfrom, 100))[1])
            await asyncio.sleep(0.01)
        assert len(ports) == 1
