"""
Delivery by routing: packets keep their destination, and go to one of the healthy nodes (the VIP kind).

No socket of fakecloud carries a flow: the kernel forwards it by a route with the nodes as next hops, nftables says what may
pass and counts it, and health checks take next hops out. The node has to take packets for the address, as kube-proxy's does.
"""

import asyncio
import logging
import time
from collections.abc import Sequence

from fakecloud.dataplane.balancing import Candidate, eligible
from fakecloud.dataplane.delivery import ListenError, Staged
from fakecloud.dataplane.firewall import Counted, Firewall, FirewallError, Passage, counter_of
from fakecloud.dataplane.forwarding import Door, Place
from fakecloud.dataplane.netlink import Netlink, NetlinkError
from fakecloud.dataplane.statuses import target_statuses
from fakecloud.dataplane.troubles import next_expiry, targets_down, trouble_of
from fakecloud.faults.rules import Armed, Strike
from fakecloud.health.monitor import Monitor
from fakecloud.health.probes import Probe
from fakecloud.health.wanted import probes_of, verdict_on
from fakecloud.models.listeners import Listener
from fakecloud.models.views import ListenerStatus, LoadBalancerStatus
from fakecloud.networks import AddressSet
from fakecloud.routes import Route

logger = logging.getLogger(__name__)
_VERDICTS = {Door.OPEN: "accept", Door.SILENT: "drop", Door.REFUSING: "reject"}


class DirectPlane:
    """
    Routes and rules follow the load balancers and the health of their targets.

    `targetPort` is where a node is probed; traffic arrives at the listener's own port. Faults of single connections
    (blackhole, slow, reset-after, half-open) are a proxy's, and do nothing here.
    """

    def __init__(self, target_networks: AddressSet, netlink: Netlink, firewall: Firewall) -> None:
        self._target_networks = target_networks
        self._netlink = netlink
        self._firewall = firewall
        self._monitor = Monitor(self.refusal, self._reroute)
        self._routes: dict[str, Route] = {}
        self._probes: dict[str, frozenset[Probe]] = {}
        self._errors: dict[str, str] = {}
        # By address, the next hops that the kernel has.
        self._hops: dict[str, Sequence[tuple[str, int]]] = {}
        self._faults: Sequence[Armed] = ()
        self._strike: Strike = lambda _: ()
        self._down: frozenset[str] = frozenset()
        self._expiry: asyncio.TimerHandle | None = None

    def refusal(self, address: str, port: int) -> str | None:  # noqa: ARG002 - a node is allowed as a whole
        """Why nothing may be sent to a node, or None."""
        if address not in self._target_networks:
            return f"{address} is outside the target networks"
        return "down by the order of a fault" if address in self._down else None

    def stage(self, route: Route, *, tolerate: bool = False) -> Staged:  # noqa: ARG002 - nothing that others could hold
        """Nothing is bound; what only a proxy can do is refused. Raises ListenError."""
        for index, listener in enumerate(route.listeners):
            if listener.proxy_protocol != "none":
                raise ListenError(index, "proxyProtocol needs --delivery proxy: nobody is there to say it")
        return Staged(route, {}, {}, lambda: None)

    async def activate(self, staged: Staged) -> None:
        route = staged.route
        name = route.load_balancer_id
        probes = frozenset(probes_of(route))
        self._monitor.want(probes)
        self._monitor.unwant(self._probes.get(name, frozenset()))
        self._routes[name], self._probes[name] = route, probes
        self._errors.pop(name, None)
        self._admit(route)
        self._send(route)

    def remove(self, load_balancer_id: str) -> None:
        route = self._routes.pop(load_balancer_id, None)
        if route is None:
            return
        self._monitor.unwant(self._probes.pop(load_balancer_id))
        self._errors.pop(load_balancer_id, None)
        for address in route.addresses:
            self._hops.pop(address, None)
            try:
                self._netlink.unroute(address)
                self._firewall.forget(load_balancer_id, address)
            except (NetlinkError, FirewallError):
                logger.exception("an address is still routed", extra={"address": address})

    def follow(self, faults: Sequence[Armed], strike: Strike) -> None:
        self._faults, self._strike = faults, strike
        destinations = [to for route in self._routes.values() for to in route.destinations]
        self._down = targets_down(faults, destinations, time.monotonic())
        for route in self._routes.values():
            self._admit(route)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if (pause := next_expiry(faults, time.monotonic())) is not None:
            self._expiry = asyncio.get_running_loop().call_later(pause + 0.001, self.follow, faults, strike)

    def failing(self) -> Sequence[str]:
        return list(self._errors)

    def status(self, route: Route) -> LoadBalancerStatus:
        """Bytes are those of packets from clients; answers leave the nodes by another way."""
        running = route.load_balancer_id in self._routes
        counted = self._firewall.counted() if running else {}
        error = self._errors.get(route.load_balancer_id)
        return LoadBalancerStatus(
            targets=target_statuses(route, (), self._monitor),
            listeners=tuple(
                ListenerStatus(
                    protocol=listener.protocol,
                    port=listener.port,
                    address=address,
                    open=running and error is None,
                    error=error,
                    connections=0,
                    active_connections=0,
                    bytes_in=counted.get(
                        counter_of(route.load_balancer_id, address, listener.protocol, listener.port), Counted()
                    ).bytes,
                    bytes_out=0,
                )
                for address in route.addresses
                for listener in route.listeners
            ),
        )

    async def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        for load_balancer_id in list(self._routes):
            self.remove(load_balancer_id)
        await self._monitor.close()
        self._firewall.close()

    def _reroute(self) -> None:
        for route in self._routes.values():
            self._send(route)

    def _admit(self, route: Route) -> None:
        sources = None if route.sources is None else [str(network) for network in route.sources.networks]
        try:
            for address in route.addresses:
                passages = [self._passage(route, address, listener) for listener in route.listeners]
                self._firewall.admit(route.load_balancer_id, address, passages, sources)
        except FirewallError as error:
            self._errors[route.load_balancer_id] = str(error)

    def _passage(self, route: Route, address: str, listener: Listener) -> Passage:
        place = Place(route.load_balancer_id, address, listener.port)
        door = trouble_of(self._faults, self._strike, place, time.monotonic()).door
        return Passage(listener.protocol, listener.port, _VERDICTS[door])

    def _send(self, route: Route) -> None:
        """Make the healthy nodes of the address's own family its next hops; a node is out when any of its checks is."""
        for address in route.addresses:
            candidates = [
                Candidate(to.address, to.weight, all(verdict_on(self._monitor, route, to, one)[0] is not False
                                                     for one in route.listeners))
                for to in route.destinations
                if to.address is not None
                and (":" in to.address) == (":" in address)
                and to.address in self._target_networks
            ]  # fmt: skip
            hops = [(one.target, one.weight) for one in eligible(candidates, fail_open=route.fail_open)]
            if self._hops.get(address) == hops:
                continue
            try:
                self._netlink.route(address, hops)
                self._hops[address] = hops
            except NetlinkError as error:
                self._errors[route.load_balancer_id] = str(error)
