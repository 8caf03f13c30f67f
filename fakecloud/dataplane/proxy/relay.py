"""
One client's connection and the connection to its target, joined: what one side sends the other gets.

Sockets instead of streams or transports: bytes go from one to the other without a task, a copy or a queue in between. A
side that reads slowly stops the reading from the other one (backpressure), a side that has finished sending is passed on
as such (half-close), and a reset arrives as a reset.
"""

import asyncio
import contextlib
import select
import socket
import struct
from typing import Protocol

from fakecloud.dataplane.proxy.context import ProxyContext
from fakecloud.dataplane.proxy.shaping import Sink
from fakecloud.models.flows import Ending

_ROOM = select.EPOLLOUT
_ERROR = select.EPOLLERR
# There is an end or an urgent byte to come: a read that gave less than it could have is not the last one then.
_MORE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLPRI | _ERROR
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Owner(Protocol):
    """Who has both sides."""

    def end(self, ending: Ending) -> None:
        """It is over, for both sides."""

    def said_all(self, half: "Half") -> None:
        """The last byte for this side has been given to it."""


class Half:
    """
    One side; as a sink, what is written to it is sent.

    `sink` is where its bytes go, None before there is a place and after the last byte; `source` is who reads more once
    there is room here.
    """

    __slots__ = (
        "_buffer",
        "_finishing",
        "_more",
        "_owner",
        "_poller",
        "_readable",
        "_unsent",
        "full",
        "quiet",
        "received",
        "sink",
        "socket",
        "source",
    )

    def __init__(self, connection: socket.socket, owner: Owner, context: ProxyContext) -> None:
        self.socket = connection
        self.received = 0
        self.sink: Sink | None = None
        self.source: Half | None = None
        self.full = False
        # Neither read nor write for now; what happens meanwhile is noticed afterwards.
        self.quiet = False
        self._owner: Owner | None = owner
        self._poller = context.poller
        self._buffer = context.buffer
        self._readable = False
        self._more = False
        self._unsent = bytearray()
        self._finishing = False

    def ready(self, events: int) -> None:
        """What epoll tells."""
        if events != _ROOM:
            self._readable = True
            if events & _MORE:
                self._more = True
                if events & _ERROR and self.sink is None:
                    self._end("reset")
        self.move()

    def move(self) -> None:
        """Send and read what can be sent and read."""
        if self.full and not self.quiet:
            self._send_rest()
        sink = self.sink
        while self._readable and sink is not None and not sink.full and not self.quiet:
            try:
                size = self.socket.recv_into(self._buffer)
            except BlockingIOError:
                self._readable = False
                return
            except OSError:
                self._end("reset")
                return
            self.received += size
            if size == len(self._buffer):
                # There is more, but it is somebody else's turn first.
                sink.write(self._buffer)
                asyncio.get_running_loop().call_soon(self.move)
                return
            self._readable = self._more
            if size > 0:
                sink.write(self._buffer[:size])
            else:
                # It has said all; epoll will go on to say that it can be read.
                self._readable, self.sink = False, None
                sink.finish()

    def write(self, data: memoryview | bytes) -> None:
        """Send it, now or as soon as there is room; while there is none the side is full, and its source waits."""
        if self.full:
            self._unsent += data
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end("reset")
            return
        if sent < len(data):
            self._unsent += data[sent:]
            self.full = True

    def finish(self) -> None:
        """That was all, once it is sent."""
        if self.full:
            self._finishing = True
        elif self._owner is not None:
            self._owner.said_all(self)

    def shut(self) -> None:
        """Tell this side that nothing more comes for it."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self._end("reset")

    def close(self, *, reset: bool) -> None:
        """Close the socket, so that the side sees a reset or a regular end; closing twice is fine."""
        if self._owner is None:
            return
        # Both sides know each other and their owner; without this they would wait for the cycle collector.
        self._owner = self.sink = self.source = None
        self._readable = self.full = False
        if reset:
            # Already gone is as good as reset.
            with contextlib.suppress(OSError):
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._poller.end(self.socket)

    def _send_rest(self) -> None:
        try:
            del self._unsent[: self.socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._end("reset")
            return
        if self._unsent:
            return
        self.full = False
        if self._finishing:
            self.finish()
        elif self.source is not None:
            self.source.move()

    def _end(self, ending: Ending) -> None:
        if self._owner is not None:
            self._owner.end(ending)
