"""What the kernel has counted of one load balancer, as the status tells it: pure."""

from collections.abc import Mapping, Sequence

from fakecloud.dataplane.balancer import Endpoint
from fakecloud.dataplane.counters import Counters
from fakecloud.dataplane.delivery import Spot
from fakecloud.dataplane.routed.nftables import Counted, names_of
from fakecloud.models.listeners import Listener
from fakecloud.models.views import ListenerStatus
from fakecloud.state.routes import Route, shown


class KernelStats:
    """`routes` are the load balancer's, toward each of its addresses; `marks` those of the nodes."""

    def __init__(self, routes: Sequence[Route], counted: Mapping[str, Counted], marks: Mapping[str, int]) -> None:
        self._routes = routes
        self._counted = counted
        self._marks = marks

    def counters_by_target(self) -> Mapping[Endpoint, Counters]:
        """By the address that the status shows; what came to a node's other address is added."""
        totals: dict[Endpoint, Counters] = {}
        for route, address in self._ways():
            for to, known in zip(route.destinations, shown(route, self._routes).destinations, strict=True):
                mark = self._marks.get(to.address or "")
                if mark is not None:
                    for listener in route.listeners:
                        endpoint = (known.address or "", to.port or listener.target_port)
                        totals.setdefault(endpoint, Counters()).add(self._read(route, address, listener, mark))
        return totals

    def listeners(
        self, refused: Mapping[Spot, str], failure: str | None, *, running: bool
    ) -> tuple[ListenerStatus, ...]:
        """`refused` are listeners that can't be served; `failure` is that of all."""
        return tuple(
            ListenerStatus(
                protocol=listener.protocol,
                port=listener.port,
                address=address,
                open=running and error is None,
                error=error,
                connections=counters.connections,
                active_connections=counters.active,
                bytes_in=counters.bytes_in,
                bytes_out=counters.bytes_out,
            )
            for route, address in self._ways()
            for listener in route.listeners
            for counters in [self._read(route, address, listener)]
            for error in [refused.get((listener.protocol, address, listener.port), failure)]
        )

    def _ways(self) -> Sequence[tuple[Route, str]]:
        return [(route, address) for route, address in zip(self._routes, self._routes[0].addresses, strict=True)]

    def _read(self, route: Route, address: str, listener: Listener, mark: int | None = None) -> Counters:
        names = names_of(route.load_balancer_id, address, listener.protocol, listener.port)
        new, into, out = (self._counted.get(names.counter(what, mark), Counted()) for what in ("new", "in", "out"))
        return Counters(new.packets, 0, into.bytes, out.bytes)
