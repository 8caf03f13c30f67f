"""What the two sides of a connection see of each other at the edges of TCP."""

import asyncio
import contextlib
import os
import socket

import pytest

from fakecloud.config import Settings
from fakecloud.dataplane.proxy.sockets import reset
from tests.fakecloud.clients import (
    DEADLINE,
    Api,
    Backends,
    address_of,
    connection,
    until,
)

LBS = "/v1/load-balancers"
TARGETS = [{"address": "127.0.0.1"}]


async def test_what_follows_an_urgent_byte_is_carried_too(api: Api, backends: Backends) -> None:
    port = await backends.start("a")
    item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=TARGETS)
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, (address_of(item), 8080))
        assert await asyncio.wait_for(loop.sock_recv(client, 100), DEADLINE) == b"a\n"
        client.send(b"before ")
        client.send(b"!", socket.MSG_OOB)
        client.send(b"after\n")
        echoed = b""
        while not echoed.endswith(b"after\n"):
            echoed += await asyncio.wait_for(loop.sock_recv(client, 100), DEADLINE)
        assert echoed == b"before after\n"


async def test_what_a_target_said_before_it_reset_arrives(api: Api, backends: Backends) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        server.setblocking(False)
        item = await api.create(
            listeners=[{"port": 8080, "targetPort": server.getsockname()[1]}],
            targets=TARGETS,
            healthCheck={"port": await backends.start("health")},
        )
        client.setblocking(False)
        await loop.sock_connect(client, (address_of(item), 8080))
        target, _ = await asyncio.wait_for(loop.sock_accept(server), DEADLINE)
        target.send(b"too large\n")
        target.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        # In one turn of the loop, so that fakecloud hears of both at once.
        target.close()
        assert await asyncio.wait_for(loop.sock_recv(client, 100), DEADLINE) == b"too large\n"
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(loop.sock_recv(client, 100), DEADLINE)


async def test_the_last_bytes_reach_a_reader_that_was_full_when_the_other_side_ended(
    api: Api, backends: Backends
) -> None:
    sent = os.urandom(20_000_000)

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        writer.write_eof()
        await writer.drain()

    port = await backends.serve(pour)
    item = await api.create(
        listeners=[{"port": 8080, "targetPort": port}],
        targets=TARGETS,
        healthCheck={"port": await backends.start("health")},
    )
    async with connection(address_of(item)) as (reader, writer):
        writer.write_eof()
        received = b""
        while piece := await asyncio.wait_for(reader.read(300_000), DEADLINE):
            received += piece
            await asyncio.sleep(0)
        assert received == sent

    async def over() -> bool:
        return [flow["ending"] for flow in (await api.get("/v1/flows"))["items"]] == ["closed"]

    await until(over)


class TestWithALongConnectTimeout:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"connect_timeout": 600.0})

    async def test_a_client_that_resets_while_its_target_does_not_answer_is_forgotten_at_once(
        self, api: Api, backends: Backends
    ) -> None:
        with socket.socket() as silent, contextlib.ExitStack() as filling:
            silent.bind(("127.0.0.4", 0))
            silent.listen(0)
            # With its queue full, the kernel drops what comes next: a target that does not answer at all.
            for _ in range(2):
                connecting = filling.enter_context(socket.socket())
                connecting.setblocking(False)
                connecting.connect_ex(silent.getsockname())
            item = await api.create(
                listeners=[{"port": 8080, "targetPort": silent.getsockname()[1]}],
                targets=[{"address": "127.0.0.4"}],
                healthCheck={"port": await backends.start("health")},
            )

            async def active(count: int) -> bool:
                (listener,) = (await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"]
                return bool(listener["activeConnections"] == count)

            async with connection(address_of(item)) as (_, writer):
                await until(lambda: active(1))
                reset(writer.transport)
                await until(lambda: active(0))
            assert [flow["ending"] for flow in (await api.get("/v1/flows"))["items"]] == ["reset"]
