"""Which of the data plane's sockets can be read or written: a selector of its own inside the event loop's."""

import asyncio
import select
import socket
from collections.abc import Callable

# Edge-triggered, and for everything at once: one registration serves a connection from its first byte to its end, where
# a transport of the event loop changes its mind about what it waits for, and costs a system call each time.
_ALL = select.EPOLLIN | select.EPOLLPRI | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
_MOST_AT_ONCE = 256

Follower = Callable[[int], None]


class Poller:
    """
    Tells followers of epoll's events, which are hints: they are told of a change, and have to try what it allows.

    Linux only. To be made where an event loop runs.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._followers: dict[int, Follower] = {}
        self._loop.add_reader(self._epoll.fileno(), self._turn)

    def watch(self, connection: socket.socket, follower: Follower) -> None:
        """Tell of everything that changes, from what can be done now on."""
        self._followers[connection.fileno()] = follower
        self._epoll.register(connection.fileno(), _ALL)

    def hand_over(self, connection: socket.socket, follower: Follower) -> None:
        """From now on it is for somebody else."""
        self._followers[connection.fileno()] = follower

    def end(self, connection: socket.socket) -> None:
        """Close it."""
        # The kernel forgets what is closed by itself.
        self._followers.pop(connection.fileno(), None)
        connection.close()

    def watch_clients(self, listening: socket.socket, follower: Follower) -> None:
        """Tell as long as there are clients to accept."""
        self._followers[listening.fileno()] = follower
        self._epoll.register(listening.fileno(), select.EPOLLIN)

    def unwatch_clients(self, listening: socket.socket) -> None:
        """Let clients wait; being told for nothing is fine."""
        if self._followers.pop(listening.fileno(), None) is not None:
            self._epoll.unregister(listening.fileno())

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _turn(self) -> None:
        # What is ready is looked up before anybody is told: the number of a socket that one follower closes may be
        # another socket's before the last one was told.
        followers = self._followers
        ready = [(followers.get(number), events) for number, events in self._epoll.poll(0, _MOST_AT_ONCE)]
        for follower, events in ready:
            if follower is not None:
                follower(events)
