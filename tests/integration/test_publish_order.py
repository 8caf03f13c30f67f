"""
ipMode and PROXY protocol, in the order in which the two servers learn of them.

Nodes with VIP send connections past the load balancer. So at no moment may a port ask for a header while VIP is published: whatever
fails, waits or is killed in between.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.faultproxy.effects import Act
from tests.faultproxy.exchange import Exchange
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import objects
from tests.harness.controller import Controller
from tests.harness.killing import Killer, revived
from tests.harness.stack import SETTLE, Stack

HEADER, PORTS = "ccm-lb.dev/proxy-protocol", "ccm-lb.dev/proxy-protocol-ports"
MOST = 60  # more requests than switching it on and off takes; reached only if something never ends


class Order:
    """Looks at both servers each time when one of them is about to be told something; `broken` is what must never be seen."""

    def __init__(self, stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy) -> None:
        self._stack = stack
        self.broken: list[str] = []
        self.headers_asked, self.vips_written = 0, 0
        api_proxy.add(Rule(Act(self._status_written), Match(method="PATCH", path="/services/[^/]+/status$")))
        cloud_proxy.add(Rule(Act(self._cloud_told), Match(method="POST|PATCH", path="/v1/load-balancers")))

    async def _status_written(self, exchange: Exchange) -> None:
        entries = exchange.json.get("status", {}).get("loadBalancer", {}).get("ingress") or []
        if exchange.request.query.get("dryRun") or not any(one.get("ipMode") == "VIP" for one in entries):
            return
        self.vips_written += 1
        service = await self._stack.get(exchange.path.split("/")[-2])
        load_balancer = await self._stack.cloud.load_balancer(service["metadata"]["uid"])
        if load_balancer is not None and asked(load_balancer):
            self.broken.append(f"VIP is written while the ports {asked(load_balancer)} have a header")

    async def _cloud_told(self, exchange: Exchange) -> None:
        ports = asked(exchange.json)
        if not ports:
            return
        self.headers_asked += 1
        for service in await self._stack.kube.list("services", self._stack.namespace):
            if any(one["ipMode"] == "VIP" for one in objects.ingress(service)):
                self.broken.append(f"the ports {ports} ask for a header while VIP is published")


def asked(load_balancer: Mapping[str, Any]) -> list[int]:
    """The ports that have a header."""
    return [one["port"] for one in load_balancer.get("listeners") or () if one.get("proxyProtocol", "none") != "none"]


def mode(service: Mapping[str, Any] | None) -> str | None:
    return objects.ingress(service)[0]["ipMode"] if objects.ingress(service) else None


@pytest.fixture
async def order(stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy) -> AsyncIterator[Order]:
    order = Order(stack, api_proxy, cloud_proxy)
    yield order
    assert order.broken == []


@asynccontextmanager
async def controller_with(
    stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy, **settings: Any
) -> AsyncIterator[Controller]:
    """A controller behind both proxies, with these settings of the cloud; VIP is the default."""
    config = stack.cloud.config(cloud_proxy.url, ipMode="VIP", **settings)
    async with Controller(stack.directory, stack.through(api_proxy), config, "--leader-elect=false") as controller:
        await controller.start_ready()
        yield controller


async def annotate(stack: Stack, name: str, header: str | None, ports: str | None = None) -> None:
    await stack.patch(name, {"metadata": {"annotations": {HEADER: header, PORTS: ports}}})


async def reached(stack: Stack, name: str, uid: str, ip_mode: str, headers: list[int]) -> None:
    """Wait until both servers are where they should be."""
    await stack.wait(name, lambda service: mode(service) == ip_mode)
    await stack.wait_balanced(uid, lambda lb: lb["state"] == "active" and sorted(asked(lb)) == headers)


async def live(stack: Stack, name: str) -> None:
    """VIP, a header on one of two ports, on both, on none, then a port less and the end."""
    uid = (await stack.create(objects.service(name, {"http": 18080, "https": 18443})))["metadata"]["uid"]
    await stack.wait(name, lambda service: mode(service) == "VIP")
    await annotate(stack, name, "v2", "18443")
    await reached(stack, name, uid, "Proxy", [18443])
    await annotate(stack, name, "v2")
    await reached(stack, name, uid, "Proxy", [18080, 18443])
    await annotate(stack, name, None)
    await reached(stack, name, uid, "VIP", [])
    await annotate(stack, name, "v1", "18443")
    await reached(stack, name, uid, "Proxy", [18443])
    await stack.patch(name, {"spec": {"ports": [{"name": "http", "port": 18080, "targetPort": 8080}]}})
    await reached(stack, name, uid, "VIP", [])
    await stack.delete(name)
    await stack.wait_gone(name)
    await stack.wait_unbalanced()


async def test_a_header_comes_after_proxy_and_goes_before_vip(
    stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy, order: Order
) -> None:
    async with controller_with(stack, api_proxy, cloud_proxy):
        await live(stack, "web")
        await stack.create(objects.service("new", annotations={HEADER: "v2"}))
        await stack.wait("new", lambda service: mode(service) == "Proxy")
    assert order.headers_asked >= 4
    assert order.vips_written >= 3


async def test_a_cloud_that_takes_its_time_keeps_nodes_at_proxy(
    stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy, order: Order
) -> None:
    async with controller_with(stack, api_proxy, cloud_proxy) as controller:
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait("web", lambda service: mode(service) == "VIP")
        pending = await stack.cloud.fault("action", outcome="pending", match={"methods": ["PATCH"]})
        await annotate(stack, "web", "v2")
        await stack.wait_event("web", "WaitingForLoadBalancer")
        assert mode(await stack.get("web")) == "Proxy"
        await controller.kill()
        await controller.start_ready()
        await stack.cloud.mend(pending)
        await reached(stack, "web", uid, "Proxy", [18080])
        pending = await stack.cloud.fault("action", outcome="pending", match={"methods": ["PATCH"]})
        await annotate(stack, "web", None)
        await stack.cloud.wait_struck(pending)
        await asyncio.sleep(0.5)  # nothing to wait for: VIP would be written now, and `order` sees it
        assert mode(await stack.get("web")) == "Proxy"
        await stack.cloud.mend(pending)
        await reached(stack, "web", uid, "VIP", [])


async def test_a_new_default_of_the_provider_is_published_before_the_cloud_follows_it(
    stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy, order: Order
) -> None:
    async with controller_with(stack, api_proxy, cloud_proxy):
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait("web", lambda service: mode(service) == "VIP")
    async with controller_with(stack, api_proxy, cloud_proxy, proxyProtocol="v2"):
        await reached(stack, "web", uid, "Proxy", [18080])
    async with controller_with(stack, api_proxy, cloud_proxy):
        await reached(stack, "web", uid, "VIP", [])


async def test_a_list_that_lags_does_not_hide_a_header_from_a_restarted_controller(
    stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy, order: Order
) -> None:
    async with controller_with(stack, api_proxy, cloud_proxy) as controller:
        uid = (await stack.create(objects.service("web")))["metadata"]["uid"]
        await stack.wait("web", lambda service: mode(service) == "VIP")
        load_balancer = await stack.wait_balanced(uid, lambda lb: lb["state"] == "active")
        path = f"/v1/load-balancers/{load_balancer['id']}"
        await stack.cloud.fault("stale-lists", seconds=3600)  # from now on lists show it without a header
        await annotate(stack, "web", "v2")
        async with asyncio.timeout(SETTLE):
            while asked(await stack.cloud.request("GET", path)) != [18080]:
                await asyncio.sleep(0.02)
        await controller.kill()
        await annotate(stack, "web", None)
        await controller.start_ready()
        await stack.wait("web", lambda service: mode(service) == "VIP")
        assert asked(await stack.cloud.request("GET", path)) == []


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("applied", [False, True], ids=["before the request arrives", "before its answer arrives"])
async def test_killed_at_any_request_of_a_switch_the_order_holds(
    stack: Stack, api_proxy: FaultProxy, cloud_proxy: FaultProxy, order: Order, *, applied: bool
) -> None:
    async with controller_with(stack, api_proxy, cloud_proxy) as controller:
        killer = Killer(controller, applied=applied)
        killer.watch_over(api_proxy)
        killer.watch_over(cloud_proxy)
        uid = (await stack.create(objects.service("web", {"http": 18080, "https": 18443})))["metadata"]["uid"]
        await reached(stack, "web", uid, "VIP", [])
        async with revived(controller):
            for nth in range(1, MOST):
                await controller.wait_ready(revived=True)
                killer.arm(nth)
                await annotate(stack, "web", "v2", "18443")
                await reached(stack, "web", uid, "Proxy", [18443])
                await annotate(stack, "web", None)
                await reached(stack, "web", uid, "VIP", [])
                if killer.disarm() is None:
                    break
            assert nth < MOST - 1, "no switch ended without a kill"
    assert nth > 6, "both ways take more requests than that"
