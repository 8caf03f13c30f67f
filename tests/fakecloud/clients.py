"""What the tests of fakecloud speak with: its API, servers behind it, its data plane, and its process."""

import asyncio
import contextlib
import io
import ipaddress
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from fakecloud.state.ipam import Network

Json = dict[str, Any]
# Seconds; nothing waits for so long but a test that fails, and the machine may be busy.
DEADLINE = 30.0


def free_pool(chance: random.Random) -> Network:
    return ipaddress.ip_network(f"127.{chance.randint(100, 250)}.{chance.randint(0, 255)}.0/24")


@dataclass(frozen=True)
class Answer:
    status: int
    body: Json
    headers: Mapping[str, str]

    @property
    def problem(self) -> str:
        """The problem's slug."""
        return str(self.body["type"]).rpartition("/")[2]

    @property
    def fields(self) -> list[str]:
        return [error["field"] for error in self.body["errors"]]


class Api:
    """One line for one call."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str | None) -> None:
        self._session = session
        self.url = url
        self._token = token

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Header names with underscores, e.g. If_Match; a body that is bytes is sent as it is."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token is not None:
            sent.setdefault("Authorization", f"Bearer {self._token}")
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        async with self._session.request(
            method, self.url + path, data=data and io.BytesIO(data), headers=sent
        ) as response:
            content = await response.read()
            return Answer(response.status, json.loads(content) if content else {}, response.headers)

    async def get(self, path: str) -> Json:
        answer = await self.call("GET", path)
        assert answer.status == 200, answer
        return answer.body

    async def create(self, **fields: Any) -> Json:
        answer = await self.call("POST", "/v1/load-balancers", load_balancer(**fields))
        assert answer.status == 201, answer
        return answer.body

    async def journal(self, query: str = "") -> list[Json]:
        items: list[Json] = (await self.get(f"/v1/journal{query}"))["items"]
        return items


def load_balancer(*, uid: str = "u1", cluster: str = "c1", **fields: Any) -> Json:
    return {
        "name": "shop/web",
        "owner": {"cluster": cluster, "uid": uid},
        "listeners": [{"port": 8080, "targetPort": 30080}],
        "targets": [],
        **fields,
    }


def address_of(item: Json) -> str:
    return str(item["addresses"][0]["address"])


class Backends:
    """Servers that send their name and then echo; each has a port of its own on a loopback address."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, name: str, address: str = "127.0.0.1", port: int = 0) -> int:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                writer.write(f"{name}\n".encode())
                while data := await reader.read(65536):
                    writer.write(data)
                    await writer.drain()
                writer.write(b"bye")
            except ConnectionError:
                pass

        return await self.serve(echo, address, port)

    async def serve(
        self,
        handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        address: str = "127.0.0.1",
        port: int = 0,
    ) -> int:
        async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.add(writer)
            try:
                await handler(reader, writer)
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
                self._writers.discard(writer)

        server = await asyncio.start_server(serve_one, address, port)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def stop(self, port: int) -> None:
        """End the server on a port, and its connections."""
        for server in self._servers:
            if server.sockets and server.sockets[0].getsockname()[1] == port:
                server.close()
        for writer in list(self._writers):
            if writer.get_extra_info("sockname")[1] == port:
                writer.transport.abort()
        await asyncio.sleep(0)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        while self._writers:
            await asyncio.sleep(0)


async def greeting(address: str, port: int = 8080) -> str:
    """Connect, and say which backend answered; empty when the connection was cut."""
    try:
        async with connection(address, port) as (reader, _):
            return (await asyncio.wait_for(reader.readline(), DEADLINE)).decode().strip()
    except ConnectionError:
        return ""


@contextlib.asynccontextmanager
async def connection(
    address: str, port: int = 8080, source: str = "127.0.0.1"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that is gone, its transport included, when the block ends."""
    async with asyncio.timeout(DEADLINE):
        reader, writer = await asyncio.open_connection(address, port, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Poll until it holds; an assertion fails at the deadline."""
    deadline = time.monotonic() + DEADLINE
    while not await condition():
        assert time.monotonic() < deadline, "did not happen in time"
        await asyncio.sleep(0.02)


class Process:
    """`fakecloud serve` as a process of its own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def worked(self) -> float:
        """Seconds of the processor that it has used: what is busy besides changes nothing in them."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> int:
        """Bytes that it has now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def start(
        self,
        directory: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> Json:
        """Start, wait for the ready file, and return what it says."""
        ready = directory / "ready.json"
        ready.unlink(missing_ok=True)
        command = [*prefix, *fakecloud_command(), "serve", "--port", "0", "--ready-file", str(ready), *arguments]
        self._process = subprocess.Popen(
            command, env=os.environ | (environment or {}), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        # Two seconds of work, of which a machine that is very busy makes half a minute.
        deadline = time.monotonic() + 3 * DEADLINE
        while not ready.exists():
            assert self._process.poll() is None, self._process.communicate()[1]
            assert time.monotonic() < deadline, "fakecloud did not become ready"
            time.sleep(0.02)
        answer: Json = json.loads(ready.read_text())
        return answer

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; exit code, stdout and stderr."""
        assert self._process is not None
        self._process.send_signal(number)
        out, err = self._process.communicate(timeout=DEADLINE)
        return self._process.returncode, out, err

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


def fakecloud_command() -> Sequence[str]:
    return [sys.executable, "-m", "fakecloud"]


def run_fakecloud(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*fakecloud_command(), *arguments],
        env=os.environ | environment,
        text=True,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
