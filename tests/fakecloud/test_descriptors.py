"""A process that may have few file descriptors: whoever takes too many, the others are served."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest

from fakecloud.descriptors import Descriptors
from fakecloud.state.ipam import Network
from tests.fakecloud.clients import (
    DEADLINE,
    Api,
    Backends,
    Json,
    Process,
    address_of,
    connection,
    greeting,
    load_balancer,
    until,
)
from tests.fakecloud.datagrams import udp_server

LBS = "/v1/load-balancers"
TARGETS = [{"address": "127.0.0.1"}]
FEW = 110
WITH_FEW = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, {FEW}))
os.execv(sys.argv[1], sys.argv[1:])
"""
RESET = b"\1\0\0\0\0\0\0\0"


@pytest.fixture
async def api(tmp_path: Path, pool: Network, process: Process) -> AsyncIterator[Api]:
    """Of a process with few descriptors; each call has a connection of its own."""
    arguments = ("--pool", str(pool), "--token", "secret", "--state", str(tmp_path / "cloud.db"))
    ready = await asyncio.to_thread(process.start, tmp_path, *arguments, prefix=[sys.executable, "-c", WITH_FEW])
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield Api(session, ready["url"], "secret")


@pytest.fixture
async def item(api: Api, backends: Backends) -> Json:
    return await api.create(
        listeners=[{"port": 8080, "targetPort": await backends.start("a")}],
        targets=TARGETS,
        healthCheck={"intervalSeconds": 0.05},
    )


def state_of(process: Process) -> str:
    """As the kernel names it: R runs, S sleeps."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def open_files(process: Process) -> int:
    return len(list(Path(f"/proc/{process.pid}/fd").iterdir()))


async def the_api_answers(api: Api, item: Json) -> None:
    """Reads and writes, each of which is stored."""
    await api.get(LBS)
    named = await api.call("PATCH", f"{LBS}/{item['id']}", {"name": "changed"})
    assert (await api.call("PATCH", f"{LBS}/{item['id']}", {"name": "again"})).status == named.status == 200


@contextlib.contextmanager
def many_clients(address: str, port: int, count: int) -> Iterator[None]:
    """The kernel shakes hands for who is not accepted yet; they go without a trace."""
    with contextlib.ExitStack() as held:
        for _ in range(count):
            client = held.enter_context(socket.create_connection((address, port), timeout=DEADLINE))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        yield


@pytest.mark.parametrize("fault", [None, "blackhole"])
async def test_clients_of_load_balancers_wait_while_the_api_and_health_checks_go_on(
    api: Api, item: Json, process: Process, fault: str | None
) -> None:
    if fault is not None:
        # Each takes one descriptor instead of two.
        assert (await api.call("POST", "/v1/faults", {"effect": {"kind": fault}})).status == 201

    async def active() -> int:
        return int((await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"][0]["activeConnections"])

    async def all_taken() -> bool:
        before = await active()
        await asyncio.sleep(0.2)
        return before > 0 and await active() == before

    # Who tries to accept again and again never sleeps, however little of a busy machine it gets.
    async def asleep() -> bool:
        return state_of(process) == "S"

    async def works() -> bool:
        return await greeting(address_of(item)) == "a"

    with many_clients(address_of(item), 8080, FEW):
        await until(all_taken)
        assert open_files(process) < FEW
        await the_api_answers(api, item)
        await until(asleep)
        status = (await api.get(f"{LBS}/{item['id']}"))["status"]
        assert status["targets"][0]["healthy"]
    await api.call("DELETE", "/v1/faults")
    await until(works)


async def test_clients_of_udp_leave_the_api_its_share(api: Api, process: Process) -> None:
    async with udp_server("u") as port:
        listeners = [{"protocol": "UDP", "port": 5353, "targetPort": port}]
        item = await api.create(listeners=listeners, targets=TARGETS)
        with contextlib.ExitStack() as held:
            for number in range(FEW):
                client = held.enter_context(socket.socket(type=socket.SOCK_DGRAM))
                client.connect((address_of(item), 5353))
                client.send(str(number).encode())

            async def came() -> bool:
                return bool((await api.get(f"{LBS}/{item['id']}"))["status"]["listeners"][0]["connections"] > 10)

            await until(came)
            await the_api_answers(api, item)
            assert open_files(process) < FEW


async def test_listeners_leave_the_api_its_share_and_the_one_too_many_is_named(
    api: Api, item: Json, process: Process
) -> None:
    wanted = [{"port": 9000 + number, "targetPort": 1} for number in range(FEW)]
    refused = await api.call("POST", LBS, load_balancer(uid="many", listeners=wanted))
    assert (refused.status, len(refused.fields)) == (422, 1)
    assert f"of {FEW} that this process may have" in refused.body["detail"]
    assert "ulimit -n" in refused.body["detail"]
    assert open_files(process) < FEW // 2
    await the_api_answers(api, item)
    assert await greeting(address_of(item)) == "a"


async def test_strangers_at_the_api_leave_traffic_and_the_token_their_share(
    api: Api, item: Json, process: Process
) -> None:
    host, _, port = api.url.removeprefix("http://").rpartition(":")
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(FEW):
            await stack.enter_async_context(connection(host, int(port)))
            assert await greeting(address_of(item)) == "a"
        await the_api_answers(api, item)
        assert open_files(process) < FEW


@pytest.mark.parametrize(
    ("limit", "used", "shared"),
    [
        (20_000, 20, Descriptors(strangers=128, probes=1248, traffic=18_220)),
        (1024, 24, Descriptors(strangers=62, probes=62, traffic=688)),
        (110, 30, Descriptors(strangers=5, probes=5, traffic=55)),
        (10, 30, Descriptors(strangers=1, probes=1, traffic=0)),
    ],
)
def test_most_of_what_is_free_is_for_traffic(limit: int, used: int, shared: Descriptors) -> None:
    assert Descriptors.shared(limit, used) == shared
    assert 4 * shared.strangers + shared.probes + shared.traffic <= max(limit - used, 5)
