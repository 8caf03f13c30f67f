"""What clients do, from whichever host: ask once, keep a connection, or open new ones without a pause."""

import asyncio
import contextlib
import dataclasses
import json
import socket
from typing import Self

from tests.packets.netns import Namespace

PATIENCE = 15.0  # seconds until a client gives up, where an answer is expected
IN_VAIN = (
    1.2  # the same where none is: time enough for TCP to send its first packet twice, and a datagram to be sent again
)


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a pod says: who it is, which address its peer has, and the PROXY header that came first, if one did."""

    pod: str
    peer: str
    header: str | None


class UnservedError(Exception):
    """No answer: refused, reset or none in time."""


async def ask(
    host: Namespace,
    address: str,
    port: int,
    protocol: str = "TCP",
    *,
    source: str | None = None,
    patience: float = PATIENCE,
) -> Answer:
    """One request over a new connection (TCP) or from a new port (UDP). Raises UnservedError."""
    try:
        async with asyncio.timeout(patience):
            if protocol == "UDP":
                return await _ask_by_datagram(host, address, port, source)
            async with Held(host, address, port, source=source) as connection:
                return await connection.ask()
    except (OSError, TimeoutError) as error:
        raise UnservedError(f"{host.host} to {address} port {port}/{protocol}: {error!r}") from error


async def unserved(
    host: Namespace, address: str, port: int, protocol: str = "TCP", *, source: str | None = None
) -> bool:
    """Whether a request gets no answer."""
    try:
        await ask(host, address, port, protocol, source=source, patience=IN_VAIN)
    except UnservedError:
        return True
    return False


class Held:
    """One TCP connection that stays; `async with` opens and closes it. Errors are OSError and TimeoutError."""

    def __init__(self, host: Namespace, address: str, port: int, *, source: str | None = None) -> None:
        self._socket = host.open_socket(address)
        if source is not None:
            self._socket.bind((source, 0))
        self._to = (address, port)
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.get_running_loop().sock_connect(self._socket, self._to)
                self._reader, self._writer = await asyncio.open_connection(sock=self._socket)
        except BaseException:
            self._socket.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._writer is not None
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def ask(self) -> Answer:
        """One question and its answer over this connection."""
        assert self._writer is not None, "use `async with`"
        async with asyncio.timeout(PATIENCE):
            self._writer.write(b"who\n")
            line = await self._reader.readline()
        if not line:
            raise ConnectionResetError("closed without an answer")
        return Answer(**json.loads(line))


@dataclasses.dataclass
class Stream:
    """New connections, one after the other, while `async with` lasts, and what they met."""

    host: Namespace
    address: str
    port: int
    answers: list[Answer] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def wait_for(self, count: int, timeout: float = 60.0) -> None:
        """Until that many more have been answered or have failed."""
        goal = len(self.answers) + len(self.failures) + count
        async with asyncio.timeout(timeout):
            while len(self.answers) + len(self.failures) < goal:
                await asyncio.sleep(0.01)

    async def _run(self) -> None:
        while True:
            try:
                self.answers.append(await ask(self.host, self.address, self.port))
            except UnservedError as error:
                self.failures.append(str(error))
            await asyncio.sleep(0.005)


async def http_body(host: Namespace, address: str, port: int, path: str) -> str:
    """The body of one HTTP answer, whatever its status. Raises OSError, TimeoutError."""
    return (await http(host, address, port, path))[1]


async def http(host: Namespace, address: str, port: int, path: str, patience: float = PATIENCE) -> tuple[int, str]:
    """Status and body of one HTTP answer. Raises OSError, TimeoutError."""
    connection = host.open_socket(address)
    try:
        async with asyncio.timeout(patience):
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
            reader, writer = await asyncio.open_connection(sock=connection)
            writer.write(f"GET {path} HTTP/1.0\r\nHost: test\r\nConnection: close\r\n\r\n".encode())
            try:
                answer = await reader.read()
            finally:
                writer.close()
    except BaseException:
        connection.close()
        raise
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head:
        raise ConnectionResetError("closed without an answer")
    return int(head.split()[1]), body.decode(errors="replace")


async def _ask_by_datagram(host: Namespace, address: str, port: int, source: str | None) -> Answer:
    loop = asyncio.get_running_loop()
    with contextlib.closing(host.open_socket(address, socket.SOCK_DGRAM)) as asking:
        if source is not None:
            asking.bind((source, 0))
        asking.connect((address, port))
        # Once more after a while, as every user of UDP does; a pod that got both answers both the same.
        for patience in (0.6, PATIENCE):
            await loop.sock_sendall(asking, b"who\n")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    return Answer(**json.loads(await loop.sock_recv(asking, 4096)))
    raise TimeoutError("no datagram came back")
