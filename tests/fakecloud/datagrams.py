"""UDP as tests speak it: servers that answer with their name, and clients."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.fakecloud.clients import DEADLINE


class Answering(asyncio.DatagramProtocol):
    """Answers each datagram with its own name and what it was sent."""

    transport: asyncio.DatagramTransport

    def __init__(self, name: str) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.DatagramTransport) or hasattr(transport, "sendto")
        self.transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.transport.sendto(self._name.encode() + b" " + data, addr)


@contextlib.asynccontextmanager
async def udp_server(name: str, address: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Its port."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Answering(name), local_addr=(address, port))
    try:
        yield int(transport.get_extra_info("sockname")[1])
    finally:
        transport.abort()


class UdpClient(asyncio.DatagramProtocol):
    """Asks from one port of its own, so that it stays one client."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[bytes] = asyncio.Queue()
        self.transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.answers.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        """Nobody listens: there is no answer."""

    async def ask(self, text: str = "hello", seconds: float = DEADLINE) -> str:
        """The answer, empty when none comes in time."""
        assert self.transport is not None
        self.transport.sendto(text.encode())
        try:
            return (await asyncio.wait_for(self.answers.get(), seconds)).decode()
        except TimeoutError:
            return ""


@contextlib.asynccontextmanager
async def udp_client(address: str, port: int, source: str = "127.0.0.1") -> AsyncIterator[UdpClient]:
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_datagram_endpoint(
        UdpClient, local_addr=(source, 0), remote_addr=(address, port)
    )
    try:
        yield client
    finally:
        transport.abort()
