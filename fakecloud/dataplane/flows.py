"""
One client's connection and the connection to its target, joined: what one side sends the other gets.

Protocols instead of streams: bytes go from one transport to the other without a task in between. A side that reads
slowly stops the other side's reading (backpressure), a side that has finished sending is passed on as such
(half-close), and a reset arrives as a reset.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from fakecloud.dataplane.shaping import Nowhere
from fakecloud.dataplane.sockets import reset


class Half(asyncio.Protocol):
    """One side. `peer` is the other one, once there is one."""

    __slots__ = ("_on_lost", "_on_made", "finished", "peer", "received", "transport")

    # What the other side writes to, and what a fault may stand in for.
    transport: asyncio.Transport

    def __init__(self, on_made: Callable[[], None], on_lost: Callable[[Exception | None], None]) -> None:
        self._on_made = on_made
        self._on_lost = on_lost
        self.peer: Half | None = None
        self.received = 0
        # This side has sent all that it will send.
        self.finished = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have all of its methods without being subclasses.
        self.transport = cast(asyncio.Transport, transport)
        self._on_made()

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.peer is not None:
            self.peer.transport.write(data)

    def eof_received(self) -> bool:
        """Stay open for what the other side still sends, unless that has finished too."""
        self.finished = True
        if self.peer is None:
            return True
        if self.peer.finished:
            self.peer.transport.close()
            return False
        if not self.peer.transport.is_closing():
            self.peer.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.peer is not None and not self.peer.transport.is_closing():
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and not self.peer.transport.is_closing():
            self.peer.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.peer is not None:
            if exc is None:
                self.peer.transport.close()
            else:
                reset(self.peer.transport)
        self._on_lost(exc)


class ClientHalf(Half):
    """The client's side; until a target is found, what it sends waits here (one read) and in the kernel."""

    __slots__ = ("_early",)

    def __init__(self, on_made: Callable[[], None], on_lost: Callable[[Exception | None], None]) -> None:
        super().__init__(on_made, on_lost)
        self._early = b""

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.peer is not None:
            self.peer.transport.write(data)
        else:
            self._early += data
            self.transport.pause_reading()

    def join(self, target: Half) -> None:
        """From here on the two sides talk to each other."""
        self.peer = target
        if self._early:
            target.transport.write(self._early)
            self._early = b""
        if self.finished:
            target.transport.write_eof()
        if not self.transport.is_closing():
            self.transport.resume_reading()


class Nobody(Half):
    """Stands where a peer would: what a client says to it is lost, and it never says anything."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(lambda: None, lambda _: None)
        self.transport = cast(asyncio.Transport, Nowhere())


class TargetHalf(Half):
    """The target's side; it joins the client as soon as it is connected, before any byte can arrive."""

    __slots__ = ("_client",)

    def __init__(
        self, client: ClientHalf, on_made: Callable[[], None], on_lost: Callable[[Exception | None], None]
    ) -> None:
        super().__init__(on_made, on_lost)
        self._client = client

    def disown(self) -> None:
        """It comes too late: the client has left, and nobody wants to hear of it any more."""
        self._on_lost = lambda _: None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer = self._client
        if self._client.transport.is_closing():
            self.transport.abort()
        else:
            self._client.join(self)
