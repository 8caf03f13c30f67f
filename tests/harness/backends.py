"""What stands behind node ports where there is no kubelet: small HTTP servers on the nodes' loopback addresses."""

import asyncio
import contextlib
from typing import Self


class NodePorts:
    """Servers that say which node and port answered; `async with` closes them all."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, int], asyncio.Server] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for address, port in list(self._servers):
            await self.close(address, port)

    async def serve(self, address: str, port: int, says: str) -> None:
        """Answer on address:port with the text `says`; once only, a repeat changes nothing."""
        if (address, port) in self._servers:
            return

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            body = f"{says}\n".encode()
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
            writer.close()

        self._servers[address, port] = await asyncio.start_server(answer, address, port)

    async def close(self, address: str, port: int) -> None:
        """Stop answering there."""
        server = self._servers.pop((address, port), None)
        if server is not None:
            server.close()
            await server.wait_closed()

    def ports(self, address: str) -> set[int]:
        """Where that node answers."""
        return {port for host, port in self._servers if host == address}


async def fetch(address: str, port: int, timeout: float = 3.0) -> str:
    """The body of one HTTP answer over a new TCP connection. Raises OSError, TimeoutError, ValueError for no or a half answer."""
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(address, port)
        try:
            writer.write(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
            await writer.drain()
            head, found, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    if not found or b" 200 " not in head.splitlines()[0]:
        raise ValueError(f"no answer from {address}:{port}: {head!r}")
    return body.decode().strip()
