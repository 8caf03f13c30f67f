"""Pods that say who they are, who speaks to them, and which PROXY header came before the first word."""

import asyncio
import contextlib
import json
import socket
from typing import Self, cast

from tests.packets.netns import Namespace
from tests.packets.topology import pod_addresses

PORT = 8080
_V2 = bytes.fromhex("0d0a0d0a000d0a515549540a")
_V2_HEAD = 16


class Pod:
    """One pod, TCP and UDP, both families; `async with` starts and stops it."""

    def __init__(self, host: Namespace) -> None:
        self.host = host
        self.name = host.host
        self._servers: list[asyncio.Server] = []
        self._transports: list[asyncio.DatagramTransport] = []
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        for address in pod_addresses(self.name):
            self._servers.append(await asyncio.start_server(self._serve, sock=self.host.bound(address, PORT)))
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(self.name), sock=self.host.bound(address, PORT, socket.SOCK_DGRAM)
            )
            self._transports.append(transport)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for transport in self._transports:
            transport.close()
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        header: str | None = None
        # A probe of the load balancer connects and says nothing.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            peer = writer.get_extra_info("peername")[0]
            while line := await reader.readline():
                if line.startswith(b"PROXY "):
                    header = line.decode().strip()
                elif line == b"\r\n" and header is None:
                    header = await _version_2(reader)
                else:
                    writer.write(_answer(self.name, peer, header))
        self._writers.discard(writer)
        writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, name: str) -> None:
        self._name = name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # asyncio's own transport for datagrams is a DatagramTransport in all but name.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(_answer(self._name, addr[0], None), addr)


async def _version_2(reader: asyncio.StreamReader) -> str:
    """The rest of a binary header, whose first two bytes are a line's end; as hexadecimal digits."""
    head = b"\r\n" + await reader.readexactly(_V2_HEAD - 2)
    if not head.startswith(_V2):
        return head.hex()
    return (head + await reader.readexactly(int.from_bytes(head[14:16], "big"))).hex()


def _answer(pod: str, peer: str, header: str | None) -> bytes:
    return json.dumps({"pod": pod, "peer": peer, "header": header}).encode() + b"\n"
