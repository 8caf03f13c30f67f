"""Changing ipMode while traffic flows, and what is left when a Service goes."""

import contextlib

import pytest

from tests.packets.clients import Held, Stream, UnservedError, ask
from tests.packets.lab import Lab
from tests.packets.rows import INSIDE, OUTSIDE, ROWS, other, view

CLIENTS = (OUTSIDE, *INSIDE)


@pytest.mark.parametrize("first", ["VIP", "Proxy"])
async def test_switching_under_traffic_fails_no_new_connection_and_keeps_the_old_ones_on_their_path(
    lab: Lab, first: str
) -> None:
    async with lab.service(first, proxy_protocol="v1") as served, contextlib.AsyncExitStack() as stack:
        address = await served.address()
        held = {name: await stack.enter_async_context(Held(lab.hosts[name], address, 80)) for name in CLIENTS}
        before = {name: await connection.ask() for name, connection in held.items()}
        through = {name for name, answer in before.items() if answer.header}
        assert through == ({OUTSIDE} if first == "VIP" else set(CLIENTS))

        streams = [Stream(lab.hosts[name], address, 80) for name in CLIENTS]
        async with contextlib.AsyncExitStack() as flowing:
            for stream in streams:
                await flowing.enter_async_context(stream)
            for stream in streams:
                await stream.wait_for(20)
            await served.switch(other(first))
            for stream in streams:
                await stream.wait_for(20)
        assert [stream.failures for stream in streams] == [[], [], []]
        ROWS["balancer", other(first)](await view(served))
        for stream in streams:
            expected = other(first) == "Proxy" or stream.host.host == OUTSIDE
            assert bool(stream.answers[-1].header) is expected, f"{stream.host.host}: {stream.answers[-1]}"
        assert {name: await connection.ask() for name, connection in held.items()} == before


async def test_a_removed_service_leaves_no_rule_and_no_listener_behind(lab: Lab) -> None:
    async with lab.service("VIP", families=("IPv4", "IPv6"), protocols=("TCP", "UDP")) as served:
        service = await served.get()
        addresses = await served.addresses()
        node_ports = {str(port["nodePort"]) for port in service["spec"]["ports"]}
        named = [*addresses, *service["spec"]["clusterIPs"], *node_ports]
        for proxy in lab.proxies.values():
            assert all(proxy.naming(word) for word in named)

        await served.remove()
        await lab.settle()
        for proxy in lab.proxies.values():
            assert {word: proxy.naming(word) for word in named} == {word: [] for word in named}
        for address in addresses:
            with pytest.raises(UnservedError):
                await ask(lab.hosts[OUTSIDE], address, 80, patience=0.5)
        assert await lab.clouds["balancer"].load_balancer(served.uid) is None
