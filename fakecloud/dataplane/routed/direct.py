"""
Delivery by routing: packets keep their destination, and go to one of the healthy nodes (the VIP kind).

No socket of fakecloud carries a flow: the kernel forwards it. nftables says what may pass, chooses a next hop for each new
flow and counts it, and health checks take next hops out. The node has to take packets for the address, as kube-proxy's does.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from fakecloud.dataplane.algorithms import Candidate, by_source, eligible, turns
from fakecloud.dataplane.delivery import Place, Spot, Staged
from fakecloud.dataplane.faulteffects import PortState, next_expiry, port_fault, targets_down
from fakecloud.dataplane.netlink import Netlink, NetlinkError
from fakecloud.dataplane.routed.chains import Steering
from fakecloud.dataplane.routed.nexthops import NextHops
from fakecloud.dataplane.routed.nftables import Counted, Firewall, FirewallError
from fakecloud.dataplane.routed.stats import KernelStats
from fakecloud.dataplane.status import target_statuses
from fakecloud.faults.rules import Armed, Strike
from fakecloud.health.monitor import Monitor
from fakecloud.health.probes import Probe
from fakecloud.health.required import probes_of, verdict_on
from fakecloud.models.listeners import Listener
from fakecloud.models.views import LoadBalancerStatus
from fakecloud.state.networks import AddressSet
from fakecloud.state.routes import Route, nodes, shown

logger = logging.getLogger(__name__)
_VERDICTS = {PortState.OPEN: "accept", PortState.SILENT: "drop", PortState.REFUSING: "reject"}
# Places of the circle by which clients' addresses choose a node: each node's share is right to about a hundredth.
_SOURCES = 256
# Weights beyond this are rounded.
_MOST_TURNS = 2_000


class DirectPlane:
    """
    Next hops and rules follow the load balancers and the health of their targets.

    `targetPort` is where a node is probed; traffic arrives at the listener's own port. Faults of single connections
    (blackhole, slow, reset-after, half-open) are a proxy's, and do nothing here. So many `probes` run at a time.
    """

    def __init__(self, target_networks: AddressSet, netlink: Netlink, firewall: Firewall, probes: int) -> None:
        self._target_networks = target_networks
        self._netlink = netlink
        self._firewall = firewall
        self._next_hops = NextHops(netlink)
        self._monitor = Monitor(self.refusal, self._follow_health, at_once=probes)
        self._routes: dict[str, Route] = {}
        self._probes: dict[str, frozenset[Probe]] = {}
        self._refused: dict[str, Mapping[Spot, str]] = {}
        self._errors: dict[str, str] = {}
        # By address, what the kernel has.
        self._hops: dict[str, Sequence[tuple[str, int]]] = {}
        self._rules: dict[str, tuple[Sequence[Steering], AddressSet | None]] = {}
        # By load balancer, the nodes that it had and whose connections may go on, and those whose time to drain is over.
        self._former: dict[str, frozenset[str]] = {}
        self._drained: dict[str, frozenset[str]] = {}
        self._counted: Mapping[str, Counted] | None = None
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
        """Nothing is bound, and what only a proxy can do is refused before: here it is told in the status, say after a restart."""
        errors = {
            (listener.protocol, address, listener.port): "proxyProtocol needs --delivery proxy"
            for address in route.addresses
            for listener in route.listeners
            if listener.proxy_protocol != "none"
        }
        return Staged(route, {}, errors, lambda: None)

    async def activate(self, staged: Staged) -> None:
        route = staged.route
        name = route.load_balancer_id
        probes = frozenset().union(*(probes_of(route.toward(address)) for address in route.addresses))
        self._monitor.want(probes)
        self._monitor.unwant(self._probes.get(name, frozenset()))
        before = self._routes.get(name)
        self._routes[name], self._probes[name], self._refused[name] = route, probes, staged.errors
        self._errors.pop(name, None)
        if before is not None:
            self._former[name] = self._former.get(name, frozenset()) | nodes(before)
        self._drained[name] = self._drained.get(name, frozenset()) - nodes(route, staying=True)
        if before is not None and route.drain_seconds is not None:
            asyncio.get_running_loop().call_later(route.drain_seconds, self._end_drained, name)
        for address in before.addresses if before is not None else ():
            if address not in route.addresses:
                self._withdraw(name, address)
        self._serve(route)

    def remove(self, load_balancer_id: str) -> None:
        route = self._routes.pop(load_balancer_id, None)
        if route is None:
            return
        self._monitor.unwant(self._probes.pop(load_balancer_id))
        self._refused.pop(load_balancer_id, None)
        self._errors.pop(load_balancer_id, None)
        self._former.pop(load_balancer_id, None)
        self._drained.pop(load_balancer_id, None)
        for address in route.addresses:
            self._withdraw(load_balancer_id, address)
        self._keep_next_hops()

    def _withdraw(self, load_balancer_id: str, address: str) -> None:
        self._hops.pop(address, None)
        self._rules.pop(address, None)
        try:
            self._netlink.unroute(address)
            self._firewall.forget(load_balancer_id, address)
        except (NetlinkError, FirewallError):
            logger.exception("an address is still routed", extra={"address": address})

    def follow(self, faults: Sequence[Armed], strike: Strike) -> None:
        self._faults, self._strike = faults, strike
        aimed = [route.toward(address) for route in self._routes.values() for address in route.addresses]
        self._down = targets_down(faults, [to for route in aimed for to in route.destinations], time.monotonic())
        for route in self._routes.values():
            self._serve(route)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if (pause := next_expiry(faults, time.monotonic())) is not None:
            self._expiry = asyncio.get_running_loop().call_later(pause + 0.001, self.follow, faults, strike)

    def failing(self) -> Sequence[str]:
        return list(self._errors)

    def status(self, route: Route) -> LoadBalancerStatus:
        """Flows are counted by their first packet; bytes out are those of answers that come by here, others are not seen."""
        running = route.load_balancer_id in self._routes
        aimed = [route.toward(address) for address in route.addresses]
        stats = KernelStats(aimed, self._counters() if running else {}, self._next_hops.known)
        return LoadBalancerStatus(
            targets=target_statuses(shown(route, aimed), [stats], self._monitor),
            listeners=stats.listeners(
                self._refused.get(route.load_balancer_id, {}), self._errors.get(route.load_balancer_id), running=running
            ),
        )

    async def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        for load_balancer_id in list(self._routes):
            self.remove(load_balancer_id)
        await self._monitor.close()
        self._firewall.close()

    def _keep_next_hops(self) -> None:
        """Those of load balancers that are there: a connection may go on at any node that they ever had."""
        try:
            self._next_hops.keep(frozenset().union(*map(nodes, self._routes.values()), *self._former.values()))
        except NetlinkError:
            logger.exception("a node is still routed to")

    def _follow_health(self) -> None:
        for route in self._routes.values():
            self._serve(route)

    def _end_drained(self, name: str) -> None:
        route = self._routes.get(name)
        if route is not None and route.drain_seconds is not None:
            self._drained[name] = self._former.get(name, frozenset()) - nodes(route, staying=True)
            self._serve(route)

    def _serve(self, route: Route) -> None:
        """Make the kernel do what is wanted for the addresses of a load balancer, as far as it does not yet."""
        try:
            for address in route.addresses:
                aimed = route.toward(address)
                served = [one for one in route.listeners if one.proxy_protocol == "none"]
                wanted = [self._steering(aimed, address, listener) for listener in served], route.sources
                self._send(aimed, address)
                if self._rules.get(address) != wanted:
                    steerings, sources = wanted
                    networks = None if sources is None else [str(network) for network in sources.networks]
                    self._firewall.admit(route.load_balancer_id, address, steerings, networks)
                    self._rules[address] = wanted
        except (NetlinkError, FirewallError) as error:
            self._errors[route.load_balancer_id] = str(error)

    def _steering(self, route: Route, address: str, listener: Listener) -> Steering:
        place = Place(route.load_balancer_id, address, listener.port)
        state = port_fault(self._faults, self._strike, place, time.monotonic()).state
        candidates = [
            Candidate(
                self._next_hops.mark_of(to.address),
                to.weight,
                verdict_on(self._monitor, route, to, listener)[0] is not False,
            )
            for to in route.destinations
            if to.address is not None and to.address in self._target_networks
        ]
        chosen = eligible(candidates, fail_open=route.fail_open)
        sources = route.algorithm == "source-hash"
        over = self._drained.get(route.load_balancer_id, frozenset()) | self._down
        marks = self._next_hops.known
        return Steering(
            listener.protocol,
            listener.port,
            slots=[by_source(chosen, str(slot))[0] for slot in range(_SOURCES) if chosen]
            if sources
            else turns(chosen, _MOST_TURNS),
            by_source=sources,
            affinity_seconds=route.affinity_seconds,
            idle_seconds=listener.idle_timeout_seconds,
            counted=frozenset(one.target for one in candidates),
            cut=frozenset(marks[node] for node in over if node in marks),
            verdict=_VERDICTS[state],
        )

    def _send(self, route: Route, address: str) -> None:
        """What nftables gives no next hop, as ICMP, is routed to any node that is healthy on all ports."""
        candidates = [
            Candidate(to.address, to.weight, all(verdict_on(self._monitor, route, to, one)[0] is not False
                                                 for one in route.listeners))
            for to in route.destinations
            if to.address is not None and to.address in self._target_networks
        ]  # fmt: skip
        hops = [(one.target, one.weight) for one in eligible(candidates, fail_open=route.fail_open)]
        if self._hops.get(address) != hops:
            self._netlink.route(address, hops)
            self._hops[address] = hops

    def _counters(self) -> Mapping[str, Counted]:
        """Read once for all that is told in one turn of the event loop: a list asks for every load balancer."""
        if self._counted is None:
            self._counted = self._firewall.counted()
            asyncio.get_running_loop().call_soon(self._forget_counters)
        return self._counted

    def _forget_counters(self) -> None:
        self._counted = None
