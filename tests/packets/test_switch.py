"""Changing ipMode while traffic flows, and what is left when a Service goes."""

import asyncio
import contextlib

import pytest

from tests.packets.clients import Held, Stream, unserved
from tests.packets.cluster import FAMILIES
from tests.packets.lab import Lab
from tests.packets.rows import INSIDE, OUTSIDE, ROWS, other, view
from tests.packets.topology import CLOUDS

CLIENTS = (OUTSIDE, *INSIDE)


@pytest.mark.parametrize("first", ["VIP", "Proxy"])
@pytest.mark.parametrize("family", FAMILIES)
async def test_switching_under_traffic_fails_no_new_connection_and_keeps_the_old_ones_on_their_path(
    lab: Lab, family: str, first: str
) -> None:
    async with (
        lab.service(first, families=(family,), proxy_protocol="v1") as served,
        contextlib.AsyncExitStack() as stack,
    ):
        address = await served.address()
        held = {name: await stack.enter_async_context(Held(lab.hosts[name], address, 80)) for name in CLIENTS}
        before = {name: await connection.ask() for name, connection in held.items()}
        through = {name for name, answer in before.items() if answer.header}
        assert through == ({OUTSIDE} if first == "VIP" else set(CLIENTS))

        streams = [Stream(lab.hosts[name], address, 80) for name in CLIENTS]
        connecting = [lab.hosts[name] for name in (*CLIENTS, "balancer")]
        lost = [host.lost_first_packets() for host in connecting]
        async with contextlib.AsyncExitStack() as flowing:
            for stream in streams:
                await flowing.enter_async_context(stream)
            for stream in streams:
                await stream.wait_for(20)
            await served.switch(other(first))
            for stream in streams:
                await stream.wait_for(20)
        assert [stream.failures for stream in streams] == [[], [], []]
        assert [host.lost_first_packets() for host in connecting] == lost, "some had to try twice"
        ROWS["balancer", other(first)](await view(served))
        for stream in streams:
            expected = other(first) == "Proxy" or stream.host.host == OUTSIDE
            assert bool(stream.answers[-1].header) is expected, f"{stream.host.host}: {stream.answers[-1]}"
        assert {name: await connection.ask() for name, connection in held.items()} == before


@pytest.mark.parametrize("family", FAMILIES)
async def test_where_the_cloud_keeps_the_destination_a_switch_ends_new_connections_alone_and_back_again_serves_them(
    lab: Lab, family: str
) -> None:
    """No order of steps would serve clients outside with Proxy; what was open goes on all the same."""
    async with (
        lab.service(
            "VIP", cloud="router", families=(family,), protocols=("TCP", "UDP"), externalTrafficPolicy="Local"
        ) as served,
        contextlib.AsyncExitStack() as stack,
    ):
        address = await served.address()
        held = {name: await stack.enter_async_context(Held(lab.hosts[name], address, 80)) for name in CLIENTS}
        before = {name: await connection.ask() for name, connection in held.items()}
        for ip_mode in ("Proxy", "VIP"):
            await served.switch(ip_mode)
            ROWS["router", ip_mode](await view(served))
            assert {name: await connection.ask() for name, connection in held.items()} == before


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_a_removed_service_leaves_no_rule_and_no_listener_behind(lab: Lab, cloud: str) -> None:
    async with lab.service("VIP", cloud=cloud, families=FAMILIES, protocols=("TCP", "UDP")) as served:
        service = await served.get()
        addresses = await served.addresses()
        node_ports = {str(port["nodePort"]) for port in service["spec"]["ports"]}
        named = [*addresses, *service["spec"]["clusterIPs"], *node_ports]
        for proxy in lab.proxies.values():
            assert all((await proxy.naming(*named)).values())

        await served.remove()
        await lab.settle()
        assert await lab.naming(*named) == {word: [] for word in named}
        assert all(await asyncio.gather(*(unserved(lab.hosts[OUTSIDE], address, 80) for address in addresses)))
        assert await lab.clouds[cloud].load_balancer(served.uid) is None
