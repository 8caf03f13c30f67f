"""The search for a target that answers: one after the other, as the balancer orders them."""

import select
import socket
from collections.abc import Iterable
from typing import Protocol

from fakecloud.dataplane.balancer import Endpoint
from fakecloud.dataplane.proxy.context import ProxyContext
from fakecloud.dataplane.proxy.sockets import connect

_FAILED = select.EPOLLERR | select.EPOLLHUP


class Seeker(Protocol):
    def found(self, target: socket.socket, endpoint: Endpoint, events: int) -> None:
        """It is connected, and belongs to the seeker; `events` is what epoll told of it."""

    def found_none(self) -> None:
        """No target answers."""


class TargetSearch:
    """Goes on until it has found a target, has none left to try, takes too long (`give_up_at`, in the loop's time), or is stopped."""

    __slots__ = ("_attempt", "_context", "_endpoint", "_endpoints", "_give_up_at", "_seeker")

    def __init__(self, endpoints: Iterable[Endpoint], give_up_at: float, context: ProxyContext, seeker: Seeker) -> None:
        self._endpoints = iter(endpoints)
        self._context = context
        self._seeker = seeker
        self._give_up_at = give_up_at
        self._attempt: socket.socket | None = None
        self._endpoint: Endpoint | None = None

    def go_on(self) -> None:
        """Try the next target."""
        for endpoint in self._endpoints:
            # Checked again here, after the API did: no configuration makes this an open relay.
            if self._context.refusal(*endpoint) is not None:
                continue
            try:
                self._attempt = connect(endpoint)
            except OSError:
                continue
            self._endpoint = endpoint
            self._context.poller.watch(self._attempt, self._ready)
            self._context.connect_timeouts.begin(self)
            return
        self._seeker.found_none()

    def late(self) -> None:
        """The target did not answer in time."""
        self.stop()
        if self._context.clock() < self._give_up_at:
            self.go_on()
        else:
            self._seeker.found_none()

    def stop(self) -> None:
        """Nobody needs a target any more."""
        if self._attempt is not None:
            self._context.connect_timeouts.end(self)
            self._context.poller.end(self._attempt)
            self._attempt = None

    def _ready(self, events: int) -> None:
        if self._attempt is None or self._endpoint is None:
            return
        if events & _FAILED:
            self.stop()
            self.go_on()
            return
        self._context.connect_timeouts.end(self)
        target, self._attempt = self._attempt, None
        self._seeker.found(target, self._endpoint, events)
