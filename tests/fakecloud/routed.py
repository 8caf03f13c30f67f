"""A network for delivery by routing: a client, the cloud as a router, and two nodes that hold the addresses themselves."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fakecloud.clients import DEADLINE, Json, Process, load_balancer
from tests.fakecloud.enclosed import LBS, Cloud, until
from tests.fakecloud.namespaces import connect, inside, namespaces, run, within

VIPS = {"IPv4": "10.99.0.1", "IPv6": "fd99::1"}
CLIENTS = {"IPv4": ("10.70.0.2", "10.70.0.3"), "IPv6": ("fd70::2", "fd70::3")}
NODES = {"one": ("10.71.0.2", "fd71::2"), "two": ("10.72.0.2", "fd72::2")}
# Says its name to whoever comes, and again for every piece of data, over TCP and UDP.
_SERVER = """
import asyncio, sys
name, port, addresses = sys.argv[1].encode(), int(sys.argv[2]), sys.argv[3:]

async def talk(reader, writer):
    writer.write(name)
    try:
        while await reader.read(1000):
            writer.write(name)
    except ConnectionError:
        pass
    writer.close()

class Datagrams(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, client):
        self.transport.sendto(name, client)

async def main():
    loop = asyncio.get_running_loop()
    for address in addresses:
        await asyncio.start_server(talk, address, port)
        await loop.create_datagram_endpoint(Datagrams, (address, port))
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Talk:
    """A TCP connection of a client that stays."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.node = self._said()

    def ask(self) -> str:
        """Who answers now. Raises OSError where the connection is cut."""
        self._connection.sendall(b"who")
        return self._said()

    def close(self) -> None:
        self._connection.close()

    def _said(self) -> str:
        said = self._connection.recv(3)
        if not said:
            raise ConnectionResetError("closed")
        return said.decode()


@dataclass(frozen=True)
class Served:
    """A load balancer, asked from the client's namespace."""

    net: "Net"
    family: str
    id: str

    @property
    def address(self) -> str:
        return VIPS[self.family]

    def talk(self, port: int = 80, client: int = 0, patience: float = DEADLINE) -> Talk:
        """Raises OSError where nobody answers."""

        def open_connection() -> socket.socket:
            source = CLIENTS[self.family][client]
            return socket.create_connection((self.address, port), patience, (source, 0))

        connection = inside(self.net.client, open_connection)
        connection.settimeout(DEADLINE)
        return Talk(connection)

    def who(self, port: int = 80, client: int = 0, patience: float = DEADLINE) -> str:
        """The node of a connection of its own."""
        talk = self.talk(port, client, patience)
        talk.close()
        return talk.node

    def who_by_datagrams(
        self, port: int = 80, client: int = 0, count: int = 2, patience: float = DEADLINE
    ) -> list[str]:
        """The nodes that answered so many datagrams from one port. Raises TimeoutError."""

        def ask() -> list[str]:
            family = socket.AF_INET6 if self.family == "IPv6" else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as asking:
                asking.settimeout(patience)
                asking.bind((CLIENTS[self.family][client], 0))
                asking.connect((self.address, port))
                answers = []
                for _ in range(count):
                    asking.send(b"who")
                    answers.append(asking.recv(100).decode())
                return answers

        return inside(self.net.client, ask)

    def change(self, **fields: Any) -> None:
        status, body = self.net.cloud.call("PATCH", f"{LBS}/{self.id}", fields)
        assert status == 200, body

    def status(self) -> Json:
        found: Json = self.net.cloud.call("GET", f"{LBS}/{self.id}")[1]["status"]
        return found

    def listeners(self) -> Mapping[tuple[str, int], Json]:
        return {(one["protocol"], one["port"]): one for one in self.status()["listeners"]}

    def targets(self) -> Mapping[str, Json]:
        return {one["target"]: one for one in self.status()["targets"]}

    def wait_health(self, **healthy: bool) -> None:
        until(lambda: {name: one["healthy"] for name, one in self.targets().items()} == healthy)


class Net:
    def __init__(self, client: str, router: str, nodes: Sequence[str], cloud: Cloud) -> None:
        self.client = client
        self.router = router
        self.nodes = dict(zip(NODES, nodes, strict=True))
        self.cloud = cloud
        self._servers: dict[tuple[str, int], subprocess.Popen[str]] = {}

    def serve(self, name: str, port: int, addresses: Sequence[str]) -> None:
        command = [*within(self.nodes[name]), sys.executable, "-c", _SERVER, name, str(port), *addresses]
        process = self._servers[name, port] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    def end(self, name: str, port: int) -> None:
        process = self._servers.pop((name, port))
        process.kill()
        process.communicate()

    def close(self) -> None:
        for name, port in list(self._servers):
            self.end(name, port)

    @contextlib.contextmanager
    def load_balancer(self, family: str = "IPv4", *, ports: Sequence[int] = (80,), **fields: Any) -> Iterator[Served]:
        """TCP and UDP on each port, with both nodes healthy; it is gone at the end of the block."""
        listeners = [
            {"protocol": protocol, "port": port, "targetPort": 30080} for port in ports for protocol in ("TCP", "UDP")
        ]
        # Nodes refuse at once where they are to be unhealthy, and may be slow where they are not.
        check = {"port": 30080, "intervalSeconds": 0.2, "timeoutSeconds": 60, "unhealthyThreshold": 1}
        wanted = {
            "families": [family],
            "listeners": listeners,
            "targets": [{"server": name} for name in NODES],
            "healthCheck": check,
            **fields,
        }
        status, made = self.cloud.call("POST", LBS, load_balancer(**wanted))
        assert status == 201, made
        try:
            served = Served(self, family, made["id"])
            served.wait_health(one=True, two=True)
            yield served
        finally:
            self.cloud.call("DELETE", f"{LBS}/{made['id']}")


@contextlib.contextmanager
def routed_net(directory: Path, process: Process) -> Iterator[Net]:
    """Both nodes serve ports 80 and 81 of the load balancers' first addresses; answers pass the cloud as well."""
    with namespaces("client", "cloud", "one", "two") as (client, router, *nodes):
        _wire(client, router, nodes)
        pools = [argument for pool in ("10.99.0.0/24", "fd99::/120") for argument in ("--pool", pool)]
        arguments = ("--addresses", "interface", "--delivery", "direct", *pools, "--token", "t")
        net = Net(client, router, nodes, Cloud(router, process.start(directory, *arguments, prefix=within(router))))
        try:
            for name, addresses in NODES.items():
                net.cloud.call("POST", "/v1/servers", {"id": name, "name": name, "addresses": addresses})
                for port in (80, 81):
                    net.serve(name, port, list(VIPS.values()))
                net.serve(name, 30080, addresses)
            yield net
        finally:
            net.close()


def _wire(client: str, router: str, nodes: Sequence[str]) -> None:
    for name, network in ((client, 70), (nodes[0], 71), (nodes[1], 72)):
        ours, theirs = connect(name, router, f"10.{network}.0.2/24", f"10.{network}.0.1/24")
        for side, interface, number in ((name, ours, 2), (router, theirs, 1)):
            run("ip", "-n", side, "addr", "add", f"fd{network}::{number}/64", "dev", interface, "nodad")
        run("ip", "-n", name, "route", "add", "default", "via", f"10.{network}.0.1")
        run("ip", "-6", "-n", name, "route", "add", "default", "via", f"fd{network}::1")
        if name == client:
            run("ip", "-n", client, "addr", "add", f"{CLIENTS['IPv4'][1]}/24", "dev", ours)
            run("ip", "-n", client, "addr", "add", f"{CLIENTS['IPv6'][1]}/64", "dev", ours, "nodad")
        else:
            run("ip", "-n", name, "addr", "add", f"{VIPS['IPv4']}/32", "dev", "lo")
            run("ip", "-n", name, "addr", "add", f"{VIPS['IPv6']}/128", "dev", "lo", "nodad")
    for setting in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        run(*within(router), "sh", "-c", f"echo 1 > /proc/sys/net/{setting}")
