import asyncio
import contextlib
import os
import socket
import time
from pathlib import Path

import pytest

from fakecloud.app import Serving
from fakecloud.config import Settings
from fakecloud.dataplane.flowlog import FlowLog
from fakecloud.dataplane.proxy.addresses import PresentAddresses
from fakecloud.dataplane.proxy.context import Limits
from fakecloud.dataplane.proxy.plane import Plane
from fakecloud.dataplane.proxy.sockets import reset
from fakecloud.models.listeners import HealthCheck, Listener
from fakecloud.state.networks import AddressSet
from fakecloud.state.routes import Destination, Route
from tests.fakecloud.clients import (
    DEADLINE,
    Api,
    Backends,
    Json,
    address_of,
    connection,
    greeting,
    load_balancer,
    until,
)

LBS = "/v1/load-balancers"
# Probes are refused or answered; none has to be given up, however busy the machine is.
FAST = {"intervalSeconds": 0.05, "timeoutSeconds": 60}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def health(api: Api, item: Json) -> list[bool | None]:
    status = (await api.get(f"{LBS}/{item['id']}"))["status"]
    return [target["healthy"] for target in status["targets"]]


async def test_the_first_connection_after_create_reaches_a_target(api: Api, backends: Backends) -> None:
    port = await backends.start("a")
    item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
    assert await greeting(address_of(item)) == "a"


async def test_targets_take_turns(api: Api, backends: Backends) -> None:
    port = await backends.start("a", "127.0.0.1")
    await backends.start("b", "127.0.0.2", port)
    item = await api.create(
        listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}, {"address": "127.0.0.2"}]
    )
    assert [await greeting(address_of(item)) for _ in range(4)] == ["a", "b", "a", "b"]


async def test_bytes_half_close_and_counters_agree(api: Api, backends: Backends) -> None:
    port = await backends.start("a")
    item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
    sent = os.urandom(5_000_000)

    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await writer.drain()
        writer.write_eof()

    async with connection(address_of(item)) as (reader, writer):
        received, _ = await asyncio.wait_for(asyncio.gather(reader.read(-1), send(writer)), DEADLINE)
    # The end of sending arrived at the target, and its last words after that came back.
    assert received == b"a\n" + sent + b"bye"

    async def settled() -> bool:
        (listener,) = (await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"]
        return (listener["activeConnections"], listener["connections"]) == (0, 1) and (
            listener["bytesIn"],
            listener["bytesOut"],
        ) == (len(sent), len(received))

    await until(settled)


async def test_a_client_that_does_not_read_stops_the_target_instead_of_filling_memory(
    api: Api, backends: Backends
) -> None:
    written = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        try:
            while written < 500_000_000:
                writer.write(b"x" * 65536)
                await writer.drain()
                written += 65536
        except ConnectionError:
            pass

    port = await backends.serve(flood)
    item = await api.create(
        listeners=[{"port": 8080, "targetPort": port}],
        targets=[{"address": "127.0.0.1"}],
        healthCheck={"intervalSeconds": 3600, "port": await backends.start("health")},
    )
    with socket.create_connection((address_of(item), 8080)) as client:

        async def begun() -> bool:
            return written > 0

        await until(begun)
        previous = -1
        while previous != written:
            previous = written
            await asyncio.sleep(0.3)
        assert written < 50_000_000
        client.setblocking(False)

        # It goes on once the client reads again.
        async def moving() -> bool:
            await asyncio.get_running_loop().sock_recv(client, 2**20)
            return written > previous + 10_000_000

        await until(moving)


async def test_a_dead_target_is_skipped_before_the_health_check_knows(api: Api, backends: Backends) -> None:
    port = await backends.start("a", "127.0.0.1")
    item = await api.create(
        listeners=[{"port": 8080, "targetPort": port}],
        targets=[{"address": "127.0.0.3"}, {"address": "127.0.0.1"}],
        healthCheck={"intervalSeconds": 3600, "unhealthyThreshold": 100},
    )
    assert [await greeting(address_of(item)) for _ in range(4)] == ["a"] * 4


class TestWithAShortConnectTimeout:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"connect_timeout": 1.0})

    async def test_what_a_client_says_meanwhile_waits_until_a_target_that_answers_is_found(
        self, api: Api, backends: Backends
    ) -> None:
        port = await backends.start("a", "127.0.0.1")
        with socket.socket() as silent, contextlib.ExitStack() as filling:
            silent.bind(("127.0.0.4", port))
            silent.listen(0)
            # With its queue full, the kernel drops what comes next: a target that does not answer at all.
            for _ in range(2):
                connecting = filling.enter_context(socket.socket())
                connecting.setblocking(False)
                connecting.connect_ex(("127.0.0.4", port))
            item = await api.create(
                listeners=[{"port": 8080, "targetPort": port}],
                targets=[{"address": "127.0.0.4"}, {"address": "127.0.0.1"}],
                healthCheck={"port": await backends.start("health")},
            )
            async with connection(address_of(item)) as (reader, writer):
                writer.write(b"hello ")
                await asyncio.sleep(0.05)
                writer.write(b"world")
                writer.write_eof()
                assert await asyncio.wait_for(reader.read(), DEADLINE) == b"a\nhello worldbye"


async def test_a_target_that_resets_is_seen_by_the_client_as_a_reset(api: Api, backends: Backends) -> None:
    async def slam(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        reset(writer.transport)

    port = await backends.serve(slam)
    item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
    async with connection(address_of(item)) as (reader, writer):
        writer.write(b"x\n")
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), DEADLINE)


async def test_without_any_target_the_client_is_reset(api: Api) -> None:
    item = await api.create()
    # The reset may be there before the client's own connect() has returned.
    with pytest.raises(ConnectionResetError):
        async with connection(address_of(item)) as (reader, _):
            await asyncio.wait_for(reader.read(), DEADLINE)


async def test_an_unhealthy_target_leaves_and_returns(api: Api, backends: Backends) -> None:
    port = await backends.start("a", "127.0.0.1")
    await backends.start("b", "127.0.0.2", port)
    item = await api.create(
        listeners=[{"port": 8080, "targetPort": port}],
        targets=[{"address": "127.0.0.1"}, {"address": "127.0.0.2"}],
        healthCheck=FAST | {"protocol": "tcp"},
    )

    async def healthy(*expected: bool) -> bool:
        return await health(api, item) == list(expected)

    await until(lambda: healthy(True, True))
    await backends.stop(port)
    await until(lambda: healthy(False, False))
    reason = (await api.get(f"{LBS}/{item['id']}"))["status"]["targets"][0]["reason"]
    assert reason == "connection refused"
    await backends.start("b", "127.0.0.2", port)
    # All unhealthy: every target is tried, so that a wrong health check does not take the service down.
    assert await greeting(address_of(item)) == "b"
    await until(lambda: healthy(False, True))


async def test_http_checks_ask_for_their_path(api: Api, backends: Backends) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" if b"/healthy " in line else b"HTTP/1.1 503 No\r\n\r\n")

    port = await backends.serve(answer)
    check = FAST | {"protocol": "http", "port": port, "path": "/healthy"}
    item = await api.create(targets=[{"address": "127.0.0.1"}], healthCheck=check)

    async def healthy(*expected: bool) -> bool:
        return await health(api, item) == list(expected)

    await until(lambda: healthy(True))
    await api.call("PATCH", f"{LBS}/{item['id']}", {"healthCheck": check | {"path": "/sick"}})
    await until(lambda: healthy(False))
    target = (await api.get(f"{LBS}/{item['id']}"))["status"]["targets"][0]
    assert target["reason"] == "GET /sick: 503"


async def test_a_deleted_server_makes_its_target_unhealthy_and_a_moved_one_is_followed(
    api: Api, backends: Backends
) -> None:
    port = await backends.start("a", "127.0.0.1")
    await backends.start("b", "127.0.0.2", port)
    server = {"id": "node-1", "name": "node-1", "addresses": ["127.0.0.1"]}
    await api.call("POST", "/v1/servers", server)
    item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"server": "node-1"}])
    assert await greeting(address_of(item)) == "a"
    await api.call("PUT", "/v1/servers/node-1", server | {"addresses": ["127.0.0.2"]})
    assert await greeting(address_of(item)) == "b"
    await api.call("DELETE", "/v1/servers/node-1")
    assert await health(api, item) == [False]
    assert await greeting(address_of(item)) == ""


async def test_changes_never_cut_connections_they_do_not_concern(api: Api, backends: Backends) -> None:
    port = await backends.start("a", "127.0.0.1")
    await backends.start("b", "127.0.0.2", port)
    item = await api.create(
        listeners=[{"port": 8080, "targetPort": port}, {"port": 8081, "targetPort": port}],
        targets=[{"address": "127.0.0.1"}],
    )
    path = f"{LBS}/{item['id']}"
    async with (
        connection(address_of(item), 8080) as (kept, keep),
        connection(address_of(item), 8081) as (cut, _),
    ):
        assert (await kept.readline(), await cut.readline()) == (b"a\n", b"a\n")
        for patch in (
            {"targets": [{"address": "127.0.0.2"}]},
            {"listeners": [{"port": 8080, "targetPort": port}, {"port": 8082, "targetPort": port}]},
            {"healthCheck": FAST, "name": "n", "tags": {"x": "y"}},
        ):
            assert (await api.call("PATCH", path, patch)).status == 200
            keep.write(b"still there?\n")
            assert await asyncio.wait_for(kept.readline(), DEADLINE) == b"still there?\n"
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(cut.read(), DEADLINE)
        assert [await greeting(address_of(item), to) for to in (8080, 8082, 8081)] == ["b", "b", ""]
        await api.call("DELETE", path)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(kept.read(), DEADLINE)
    assert await greeting(address_of(item)) == ""


async def test_source_ranges_keep_other_clients_out(api: Api, backends: Backends) -> None:
    port = await backends.start("a")
    item = await api.create(
        listeners=[{"port": 8080, "targetPort": port}],
        targets=[{"address": "127.0.0.1"}],
        sourceRanges=["127.0.7.0/24"],
    )
    assert await greeting(address_of(item)) == ""
    async with connection(address_of(item), source="127.0.7.1") as (reader, _):
        assert await asyncio.wait_for(reader.readline(), DEADLINE) == b"a\n"


async def test_a_port_that_is_in_use_is_refused_and_leaves_nothing_behind(api: Api, backends: Backends) -> None:
    first = await api.create()
    address = address_of(first)
    await api.call("DELETE", f"{LBS}/{first['id']}")
    with socket.create_server((address, 9443)):
        listeners = [{"port": 9080, "targetPort": 1}, {"port": 9443, "targetPort": 1}]
        refused = await api.call("POST", LBS, load_balancer(listeners=listeners, addresses=[address]))
    assert (refused.status, refused.fields) == (422, ["listeners[1].port"])
    assert "in use" in refused.body["detail"]
    assert (await api.get(LBS))["items"] == []
    assert await greeting(address, 9080) == ""
    again = await api.create(listeners=listeners, addresses=[address])
    assert all(listener["open"] for listener in again["status"]["listeners"])


async def test_traffic_that_would_go_in_circles_is_refused_at_connect_time(api: Api) -> None:
    item = await api.create()
    address = address_of(item)
    patch = {"targets": [{"address": address}], "listeners": [{"port": 8080, "targetPort": 8080}]}
    assert (await api.call("PATCH", f"{LBS}/{item['id']}", patch)).status == 200
    assert await greeting(address) == ""


async def test_a_target_outside_the_allowed_networks_is_not_connected_to(pool: object, backends: Backends) -> None:
    port = await backends.start("a")
    plane = Plane(AddressSet.of(["127.0.0.2/32"]), Limits(), PresentAddresses(), FlowLog(10, time.time))
    listener = Listener(port=8080, target_port=port)
    # The API never lets such a route come to be; the data plane does not rely on that.
    address = str(pool[1])  # type: ignore[index]
    destination = Destination("evil", "127.0.0.1")
    route = Route("lb", (address,), (listener,), (destination,), HealthCheck(), None)
    await plane.activate(plane.stage(route))
    assert await greeting(address) == ""

    async def refused() -> bool:
        return plane.status(route).targets[0].reason != "not probed yet"

    await until(refused)
    assert "outside" in plane.status(route).targets[0].reason
    await plane.close()


async def test_a_client_that_leaves_while_it_is_given_a_target_leaves_nothing_behind(
    api: Api, backends: Backends
) -> None:
    port = await backends.start("a")
    item = await api.create(listeners=[{"port": 8080, "targetPort": port}], targets=[{"address": "127.0.0.1"}])
    loop = asyncio.get_running_loop()
    for turn in range(400):
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, (address_of(item), 8080))
            # Some leave before, some while, some after the target is connected.
            for _ in range(turn % 8):
                await asyncio.sleep(0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    async def none_left() -> bool:
        (listener,) = (await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"]
        return bool((listener["activeConnections"], listener["connections"]) == (0, 400))

    await until(none_left)


class TestWithFewConnections:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"max_connections": 24})

    async def test_a_load_balancer_that_is_deleted_while_clients_connect_gives_every_connection_back(
        self, api: Api, serving: Serving, backends: Backends
    ) -> None:
        port = await backends.start("a")
        listeners = [{"port": 8080, "targetPort": port}]
        for turn in range(60):
            item = await api.create(listeners=listeners, targets=[{"address": "127.0.0.1"}])
            with contextlib.ExitStack() as clients:
                for _ in range(20):
                    client = clients.enter_context(socket.socket())
                    client.setblocking(False)
                    client.connect_ex((address_of(item), 8080))
                for _ in range(turn % 12):
                    await asyncio.sleep(0)
                await serving.cloud.delete_load_balancer(item["id"])
        item = await api.create(listeners=listeners, targets=[{"address": "127.0.0.1"}])
        async with contextlib.AsyncExitStack() as all_of_them:
            for _ in range(24):
                reader, _ = await all_of_them.enter_async_context(connection(address_of(item)))
                assert await asyncio.wait_for(reader.readline(), DEADLINE) == b"a\n"


async def test_nothing_leaks(api: Api, serving: Serving, backends: Backends) -> None:
    port = await backends.start("a")
    await api.get("/v1/servers")  # so that the client's own connection is open before the count
    before, tasks = open_files(), len(asyncio.all_tasks())
    for number in range(5):
        item = await api.create(
            uid=f"u{number}",
            listeners=[{"port": 8080, "targetPort": port}],
            targets=[{"address": "127.0.0.1"}, {"address": "127.0.0.9"}],
            healthCheck=FAST,
        )
        assert {await greeting(address_of(item)) for _ in range(20)} == {"a"}
        async with contextlib.AsyncExitStack() as idle:
            for _ in range(10):
                await idle.enter_async_context(connection(address_of(item)))
            await api.call("DELETE", f"{LBS}/{item['id']}")

    async def back_to_where_it_was() -> bool:
        return open_files() <= before and len(asyncio.all_tasks()) <= tasks

    await until(back_to_where_it_was)
