"""The PROXY header as foreign receivers read it, and what they do with clients that bypass the load balancer."""

from pathlib import Path

import pytest

from tests.packets import receivers
from tests.packets.clients import ask, http
from tests.packets.lab import PROXY_PROTOCOL_PORTS, Lab
from tests.packets.netns import Namespace
from tests.packets.pods import PORT
from tests.packets.receivers import Receiver
from tests.packets.rows import INSIDE, OUTSIDE
from tests.packets.topology import lan_addresses


@pytest.mark.parametrize("family", ["IPv4", "IPv6"])
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("name", receivers.NAMES)
async def test_the_receiver_learns_the_client_and_refuses_who_comes_without_a_header(
    lab: Lab, tmp_path: Path, name: str, version: str, family: str
) -> None:
    if receivers.missing(name):
        pytest.skip(f"{name} is missing: apt-get install {name}")
    index = 0 if family == "IPv4" else 1
    async with (
        Receiver(name, lab.hosts["server1"], tmp_path),
        lab.service(
            "Proxy",
            families=(family,),
            pods=("server1",),
            target_port=receivers.PORT,
            proxy_protocol=version,
            annotations={PROXY_PROTOCOL_PORTS: "80"},
            beside={81: PORT},
        ) as served,
    ):
        address = await served.address()
        client, node = lan_addresses(OUTSIDE)[index], lan_addresses("node1")[index]
        assert await http(lab.hosts[OUTSIDE], address, 80, "/") == (200, f"{client} {address}")
        for inside in INSIDE:
            assert await http(lab.hosts[inside], address, 80, "/") == (200, f"{node} {address}")
        for anybody in (OUTSIDE, *INSIDE):
            assert (await ask(lab.hosts[anybody], address, 81)).header is None, "the other port goes without"

        await served.switch("VIP")
        assert await http(lab.hosts[OUTSIDE], address, 80, "/") == (200, f"{client} {address}")
        for inside in INSIDE:
            assert await _refused(lab.hosts[inside], address)


async def _refused(host: Namespace, address: str) -> bool:
    """Whether the connection was cut or answered with an error."""
    try:
        return (await http(host, address, 80, "/"))[0] != 200
    except ConnectionResetError:
        return True
