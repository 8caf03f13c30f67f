"""
The connections of the API: each is closed when it sends no request, and those of strangers are limited in number.

A stranger is who has not shown the token yet. When there are too many, the one that came first has to go: whoever has the
token needs only as long as its first request takes, and is not counted any more.
"""

import asyncio
import contextlib
import logging
import socket

from aiohttp import web

from fakecloud import errors
from fakecloud.api.responses import problem_response

logger = logging.getLogger(__name__)

# Of one request; a line of the header may have 8 KiB.
_MOST_HEADERS = 64


class Clients:
    """`seconds` is how long a connection may be without a complete header, or read nothing of its answer."""

    def __init__(self, most_strangers: int, seconds: float) -> None:
        self.seconds = seconds
        self._most = most_strangers
        # The longest here first.
        self._strangers: dict[web.RequestHandler, None] = {}

    def connection(self, server: web.Server) -> "Client":
        """The protocol of a new connection, whose requests are the server's."""
        client = Client(self, server)
        self._strangers[client] = None
        if len(self._strangers) > self._most:
            # Those that were accepted in this very turn of the loop have no transport yet.
            oldest = next((one for one in self._strangers if one.transport is not None), None)
            if oldest is not None and oldest.transport is not None:
                self._strangers.pop(oldest)
                oldest.transport.abort()
        return client

    def knows(self, client: web.RequestHandler) -> None:
        """It has shown the token."""
        self._strangers.pop(client, None)

    def gone(self, client: web.RequestHandler) -> None:
        self._strangers.pop(client, None)


class Client(web.RequestHandler):
    """One connection."""

    __slots__ = ("_clients",)

    def __init__(self, clients: Clients, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # None is none
            # Counts from the connection's begin as well: a header that does not end is none.
            keepalive_timeout=clients.seconds,
            # Nobody waits for, or reads, the rest of a body that was refused.
            lingering_time=0,
            # A megabyte may hold a gigabyte; see Bodies.
            auto_decompress=False,
            max_headers=_MOST_HEADERS,
        )
        self._clients = clients

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Who does not read its answer is cut by the kernel.
        with contextlib.suppress(OSError):
            transport.get_extra_info("socket").setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._clients.seconds * 1000)
            )

    def connection_lost(self, exc: BaseException | None) -> None:
        self._clients.gone(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What is no HTTP is a problem too, and of the client: no error of the log."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        if status >= 500:
            logger.error("a request failed", exc_info=exc)
            problem = errors.problem(500, "internal-error", "fakecloud failed; its log has the details").problem
        else:
            reason = (message or "").partition("\n")[0].rstrip(":") or "not HTTP"
            logger.debug("not understood", extra={"client": request.remote, "reason": reason})
            problem = errors.problem(status, "malformed-request", reason).problem
        response = problem_response(problem)
        response.force_close()
        return response
