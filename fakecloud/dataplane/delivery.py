"""What the cloud asks of a data plane, whichever way it delivers."""

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from fakecloud.faults.rules import Armed, Strike
from fakecloud.models.listeners import Protocol
from fakecloud.models.views import LoadBalancerStatus
from fakecloud.state.routes import Route

# A protocol, an address and a port.
Spot = tuple[Protocol, str, int]


@dataclass(frozen=True)
class Place:
    """Which listener it is."""

    load_balancer: str
    address: str
    port: int

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.address, self.port


class ListenError(Exception):
    """A listener's port can't be had; `index` is the listener's place in the route."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index


@dataclass(frozen=True)
class Staged:
    """The sockets that a route needs beyond those that are open, bound and not yet served."""

    route: Route
    sockets: Mapping[Spot, socket.socket]
    errors: Mapping[Spot, str]
    # Undoes the claim on addresses that only this route needed.
    release: Callable[[], None]

    def discard(self) -> None:
        for listening in self.sockets.values():
            listening.close()
        self.release()


class Delivery(Interface):
    """What is staged can be discarded; what is activated serves traffic until it is removed."""

    def stage(self, route: Route, *, tolerate: bool = False) -> Staged:
        """Get what the route needs beyond what is there; with `tolerate` a failure is kept for the status. Raises ListenError."""
        ...

    async def activate(self, staged: Staged) -> None:
        """Serve the route; connections of listeners that stay are not touched."""
        ...

    def remove(self, load_balancer_id: str) -> None:
        """Serve it no more; one that does not run is fine."""
        ...

    def follow(self, faults: Sequence[Armed], strike: Strike) -> None:
        """Do what faults order for traffic."""
        ...

    def failing(self) -> Sequence[str]:
        """The ids of load balancers of which a part could not be served."""
        ...

    def status(self, route: Route) -> LoadBalancerStatus:
        """Health of the targets and counters of the listeners."""
        ...

    async def close(self) -> None:
        """Cut everything, and leave nothing behind."""
        ...
