"""Faults of the data plane: what clients of a load balancer see."""

import asyncio
import contextlib
import errno
import socket
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fakecloud.state.ipam import Network
from tests.fakecloud.clients import DEADLINE, Api, Backends, Json, Process, address_of, connection, greeting, until
from tests.fakecloud.datagrams import udp_client, udp_server

LBS = "/v1/load-balancers"


@pytest.fixture
async def item(api: Api, backends: Backends) -> Json:
    port = await backends.start("a", "127.0.0.1")
    await backends.start("b", "127.0.0.2", port)
    await api.call("POST", "/v1/servers", {"id": "node-b", "name": "b", "addresses": ["127.0.0.2"]})
    return await api.create(
        listeners=[{"port": 8080, "targetPort": port}, {"port": 8081, "targetPort": port}],
        targets=[{"address": "127.0.0.1"}, {"server": "node-b"}],
        healthCheck={"intervalSeconds": 0.05, "unhealthyThreshold": 1},
    )


async def order(api: Api, kind: str, *, match: Json | None = None, fault: Json | None = None, **effect: Any) -> str:
    body = {"match": match or {}, "effect": {"kind": kind, **effect}, **(fault or {})}
    answer = await api.call("POST", "/v1/faults", body)
    assert answer.status == 201, answer
    return str(answer.body["id"])


async def remove(api: Api, fault: str) -> None:
    assert (await api.call("DELETE", f"/v1/faults/{fault}")).status == 204


async def works(item: Json, port: int = 8080) -> bool:
    return await greeting(address_of(item), port) in {"a", "b"}


def connect_error(address: str, port: int = 8080, seconds: float = 0.5) -> int | None:
    """What the handshake itself says, None when it succeeds; the loop stands still meanwhile, the kernel does not."""
    with socket.socket() as client:
        client.settimeout(seconds)
        try:
            client.connect((address, port))
        except TimeoutError:
            return errno.ETIMEDOUT
        except OSError as error:
            return error.errno
    return None


async def test_a_target_that_is_down_loses_its_connections_its_health_and_comes_back(
    api: Api, item: Json, backends: Backends
) -> None:
    held = [await asyncio.open_connection(address_of(item), 8080) for _ in range(2)]
    by_name = {(await reader.readline()).decode().strip(): (reader, writer) for reader, writer in held}
    fault = await order(api, "target-down", match={"target": "node-b"})
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(by_name["b"][0].read(), DEADLINE)
    by_name["a"][1].write(b"fine\n")
    assert await asyncio.wait_for(by_name["a"][0].readline(), DEADLINE) == b"fine\n"
    assert {await greeting(address_of(item)) for _ in range(4)} == {"a"}

    async def health_is(*, expected: bool) -> bool:
        targets = (await api.get(f"{LBS}/{item['id']}"))["status"]["targets"]
        return all(one["healthy"] is expected for one in targets if one["target"] == "node-b")

    await until(lambda: health_is(expected=False))
    await remove(api, fault)
    await until(lambda: health_is(expected=True))
    assert {await greeting(address_of(item)) for _ in range(4)} == {"a", "b"}
    for _, writer in held:
        writer.transport.abort()


async def test_a_refusing_port_refuses_the_handshake_and_opens_again(api: Api, item: Json) -> None:
    async with connection(address_of(item)) as (reader, writer):
        await reader.readline()
        fault = await order(api, "refuse", match={"loadBalancer": item["id"], "port": 8080})
        assert connect_error(address_of(item)) == errno.ECONNREFUSED
        assert await works(item, 8081)
        writer.write(b"still\n")
        assert await asyncio.wait_for(reader.readline(), DEADLINE) == b"still\n"
        await remove(api, fault)
        assert await works(item)


async def test_a_silent_address_answers_no_handshake_and_no_byte_until_it_speaks_again(api: Api, item: Json) -> None:
    async with connection(address_of(item)) as (reader, writer):
        await reader.readline()
        fault = await order(api, "silent", match={"address": address_of(item)})
        for port in (8080, 8081):
            assert connect_error(address_of(item), port) == errno.ETIMEDOUT
        writer.write(b"hello\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), 0.3)
        await remove(api, fault)
        assert await asyncio.wait_for(reader.readline(), DEADLINE) == b"hello\n"

        async def answers() -> bool:
            return await works(item) and await works(item, 8081)

        await until(answers)


async def test_a_silent_address_takes_no_datagram(api: Api) -> None:
    async with udp_server("u") as port:
        listeners = [{"protocol": "UDP", "port": 5353, "targetPort": port}]
        item = await api.create(listeners=listeners, targets=[{"address": "127.0.0.1"}])
        async with udp_client(address_of(item), 5353) as client:
            assert await client.ask() == "u hello"
            fault = await order(api, "silent", match={"address": address_of(item)})
            assert await client.ask(seconds=0.2) == ""
            await remove(api, fault)
            assert await client.ask("back") == "u back"
            await order(api, "blackhole", fault={"times": 1})
        async with udp_client(address_of(item), 5353) as client:
            assert await client.ask(seconds=0.2) == ""
        async with udp_client(address_of(item), 5353) as client:
            assert await client.ask() == "u hello"


async def test_a_blackhole_swallows_what_it_is_sent(api: Api, item: Json) -> None:
    fault = await order(api, "blackhole", match={"port": 8080}, fault={"times": 1})
    async with connection(address_of(item)) as (reader, writer):
        for _ in range(50):
            writer.write(b"x" * 100_000)
            await asyncio.wait_for(writer.drain(), DEADLINE)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        assert await works(item)
    assert (await api.get(f"/v1/faults/{fault}"))["applied"] == 1


async def test_a_half_open_connection_is_accepted_and_never_answered(api: Api, item: Json) -> None:
    await order(api, "half-open", match={"port": 8080}, fault={"times": 1})
    async with connection(address_of(item)) as (reader, writer):
        writer.write(b"anybody?\n")
        writer.write_eof()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.5)
        targets = (await api.get(f"{LBS}/{item['id']}"))["status"]["targets"]
        assert sum(one["connections"] for one in targets) == 1
    assert await works(item)


async def test_a_connection_is_reset_after_so_many_bytes(api: Api, item: Json) -> None:
    await order(api, "reset-after", bytes=10, fault={"times": 1})
    async with connection(address_of(item)) as (reader, writer):
        writer.write(b"0123456789" * 10)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), DEADLINE)

    async def logged() -> bool:
        return [flow["ending"] for flow in (await api.get("/v1/flows"))["items"]] == ["fault"]

    await until(logged)


async def test_a_slow_connection_has_its_latency_and_its_rate_and_loses_nothing(api: Api, item: Json) -> None:
    await order(api, "slow", latencySeconds=0.1, bytesPerSecond=200_000, fault={"times": 1})
    sent = bytes(range(256)) * 400
    # Before the connection: fakecloud's clock for it may begin before connect() returns here.
    started = time.monotonic()
    async with connection(address_of(item)) as (reader, writer):
        assert await asyncio.wait_for(reader.readline(), DEADLINE) in {b"a\n", b"b\n"}
        assert time.monotonic() - started >= 0.1
        started = time.monotonic()
        writer.write(sent)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), DEADLINE) == sent + b"bye"
        assert time.monotonic() - started >= len(sent) / 200_000


async def test_a_traffic_fault_ends_after_its_time(api: Api, item: Json) -> None:
    await order(api, "refuse", fault={"forSeconds": 0.3})
    assert connect_error(address_of(item)) == errno.ECONNREFUSED

    async def open_again() -> bool:
        return await works(item)

    await until(open_again)


async def test_a_load_balancer_that_is_made_under_a_fault_has_it_too(api: Api, item: Json) -> None:
    await order(api, "refuse", match={"port": 9090})
    other = await api.create(uid="u2", listeners=[{"port": 9090, "targetPort": 1}])
    assert connect_error(address_of(other), 9090) == errno.ECONNREFUSED
    assert (await api.call("DELETE", f"{LBS}/{other['id']}")).status == 204
    assert (await api.call("POST", "/v1/reset")).status == 204


async def test_a_slow_line_carries_small_pieces_in_order_each_with_its_latency(api: Api, item: Json) -> None:
    await order(api, "slow", latencySeconds=0.05, bytesPerSecond=1000, fault={"times": 1})
    async with connection(address_of(item)) as (reader, writer):
        await asyncio.wait_for(reader.readline(), DEADLINE)
        sent = b"".join(b"%03d," % number for number in range(50))
        started = time.monotonic()
        for start in range(len(sent)):
            writer.write(sent[start : start + 1])
            await asyncio.sleep(0)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), DEADLINE) == sent + b"bye"
        # There and back: twice the latency, and the rate once, since the ways run at the same time.
        assert time.monotonic() - started >= 0.1 + len(sent) / 1000


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"bytesPerSecond": 1}, id="a byte a second"),
        pytest.param({"bytesPerSecond": 39, "latencySeconds": 30}, id="late and slow"),
        pytest.param({"latencySeconds": 60}, id="late"),
    ],
)
async def test_slow_connections_cost_little_memory_and_work(
    tmp_path: Path, pool: Network, process: Process, backends: Backends, fault: Json
) -> None:
    """Twenty of them had a timer for each of their bytes, which took 1.3 GB."""

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.gather(swallow(reader), flood(writer))

    async def swallow(reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass

    async def flood(writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                writer.write(bytes(2**18))
                await writer.drain()

    port = await backends.serve(pour)
    ready = await asyncio.to_thread(process.start, tmp_path, "--pool", str(pool), "--token", "secret")
    async with aiohttp.ClientSession() as session, contextlib.AsyncExitStack() as stack:
        api = Api(session, ready["url"], "secret")
        item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
        await order(api, "slow", **fault)
        before, worked = process.memory, process.worked
        for _ in range(20):
            _, writer = await stack.enter_async_context(connection(address_of(item)))
            writer.write(bytes(2**20))

        async def all_pour() -> bool:
            flows = (await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"]
            return bool(flows[0]["bytesIn"] >= 20 * 2**16 and flows[0]["bytesOut"] >= 20 * 2**16)

        await until(all_pour)
        assert process.memory - before < 60 * 2**20
        assert process.worked - worked < 2


async def test_late_datagrams_are_few(tmp_path: Path, pool: Network, process: Process) -> None:
    async with udp_server("u") as port, aiohttp.ClientSession() as session:
        ready = await asyncio.to_thread(process.start, tmp_path, "--pool", str(pool), "--token", "secret")
        api = Api(session, ready["url"], "secret")
        listeners = [{"protocol": "UDP", "port": 5353, "targetPort": port}]
        item = await api.create(listeners=listeners, targets=[{"address": "127.0.0.1"}])
        await order(api, "slow", latencySeconds=60)
        before = process.memory

        with socket.socket(type=socket.SOCK_DGRAM) as client:
            client.connect((address_of(item), 5353))
            sent = 0
            async with asyncio.timeout(DEADLINE):
                while sent < 60 * 2**20:
                    # One at a time: none is lost in the kernel's own queue.
                    sent += client.send(bytes(60_000))
                    while (await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"][0]["bytesIn"] < sent:
                        await asyncio.sleep(0.001)
        assert process.memory - before < 20 * 2**20


async def test_late_datagrams_arrive_in_order_with_their_latency(api: Api) -> None:
    async with udp_server("u") as port:
        listeners = [{"protocol": "UDP", "port": 5353, "targetPort": port}]
        item = await api.create(listeners=listeners, targets=[{"address": "127.0.0.1"}])
        await order(api, "slow", latencySeconds=0.1)
        async with udp_client(address_of(item), 5353) as client:
            started = time.monotonic()
            assert client.transport is not None
            for number in range(5):
                client.transport.sendto(str(number).encode())
            answers = [(await asyncio.wait_for(client.answers.get(), DEADLINE)).decode() for _ in range(5)]
            assert answers == [f"u {number}" for number in range(5)]
            assert time.monotonic() - started >= 0.2
