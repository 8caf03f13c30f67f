"""A listening socket that refuses, or stops answering, without giving its port away."""

import contextlib
import socket

_BACKLOG = 4096


def refuse(listening: socket.socket) -> None:
    """From now on the kernel answers with a reset: no handshake. Linux keeps the port bound."""
    with contextlib.suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)


def reopen(listening: socket.socket) -> None:
    """Take connections again, after `refuse` or a plug."""
    listening.listen(_BACKLOG)


class Plug:
    """Fills the queue of a listening socket that nobody accepts from: the kernel then drops every handshake."""

    def __init__(self, listening: socket.socket, endpoint: tuple[str, int]) -> None:
        self._listening = listening
        listening.listen(0)
        self._clients: list[socket.socket] = []
        # A queue of 0 takes one connection; the second one stays half done and is never answered.
        for _ in range(2):
            client = socket.socket(listening.family, socket.SOCK_STREAM)
            client.setblocking(False)
            client.connect_ex(endpoint)
            self._clients.append(client)

    def pull(self) -> None:
        """Empty the queue of what is in it."""
        for client in self._clients:
            client.close()
        self._listening.setblocking(False)
        with contextlib.suppress(OSError):
            while True:
                self._listening.accept()[0].close()
