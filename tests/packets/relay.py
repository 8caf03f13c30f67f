"""TCP from one host's loopback to another's: it takes the API server into the nodes and a cloud's API out of its namespace."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Self

_HOST = "127.0.0.1"
_CHUNK = 65536


class Relay:
    """
    Whoever connects to `port` on the loopback of where `listening` was made reaches the same port where `outgoing` makes sockets;
    the same port and address, so that certificates and kubeconfigs hold on both sides. `async with` ends it.
    """

    def __init__(self, listening: socket.socket, outgoing: Callable[[], socket.socket]) -> None:
        self._listening = listening
        self._outgoing = outgoing
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, sock=self._listening)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        port = self._listening.getsockname()[1]
        with contextlib.suppress(
            OSError, asyncio.CancelledError
        ):  # cancelled by __aexit__ alone: asyncio's server would log it
            connection = self._outgoing()
            try:
                await asyncio.get_running_loop().sock_connect(connection, (_HOST, port))
            except OSError:
                connection.close()
                writer.close()
                return
            far_reader, far_writer = await asyncio.open_connection(sock=connection)
            try:
                await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            finally:
                far_writer.close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
