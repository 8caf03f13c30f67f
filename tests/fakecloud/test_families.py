"""A family comes and goes on a load balancer that serves: the other family's address and connections stay as they are."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakecloud.clients import DEADLINE, Api, Process, load_balancer
from tests.fakecloud.enclosed import LBS, Cloud
from tests.fakecloud.namespaces import addresses_in, inside, namespaces, within

FOUR, SIX = "10.99.0.1", "fd99::1"
ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(4096):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
with Server(("127.0.0.1", 30080), Echo) as server:
    print("ready", flush=True)
    server.serve_forever()
"""


@pytest.mark.parametrize(
    ("families", "field"),
    [
        pytest.param(["IPv4", "IPv6"], "families[1]", id="one more"),
        pytest.param(["IPv6"], "families[0]", id="the other"),
        pytest.param(["IPv4", "IPv4"], "families", id="twice"),
        pytest.param([], "families", id="none"),
        pytest.param(None, "families", id="null"),
        pytest.param(["IPv5"], "families[0]", id="unknown"),
    ],
)
async def test_a_family_that_can_not_be_served_is_refused_and_nothing_changes(
    api: Api, families: object, field: str
) -> None:
    before = await api.create()
    path = f"{LBS}/{before['id']}"
    refused = await api.call("PATCH", path, {"families": families, "name": "new"})
    assert (refused.status, refused.fields) == (422, [field])
    assert await api.get(path) == before
    same = await api.call("PATCH", path, {"families": ["IPv4"]})
    assert (same.status, same.headers["ETag"]) == (200, before["etag"])


class RealCloud(Cloud):
    """With real addresses of both families on its namespace's loopback interface."""

    def connect(self, address: str) -> socket.socket:
        return inside(self.namespace, lambda: socket.create_connection((address, 80), DEADLINE))

    def addresses(self) -> set[str]:
        return addresses_in(self.namespace)


@pytest.fixture
def cloud(tmp_path: Path, process: Process) -> Iterator[RealCloud]:
    pytest.importorskip("pyroute2", reason="needs pyroute2: pip install pyroute2")
    with namespaces("families") as (name,):
        pools = ("--pool", "10.99.0.0/30", "--pool", "fd99::/126")
        state = ("--state", str(tmp_path / "cloud.db"), "--token", "t")
        ready = process.start(tmp_path, "--addresses", "interface", *pools, *state, prefix=within(name))
        yield RealCloud(name, ready)
        process.kill()


@pytest.fixture
def echo(cloud: RealCloud) -> Iterator[None]:
    """A server inside the namespace, on the node port."""
    command = [*within(cloud.namespace), sys.executable, "-c", ECHO]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield
    finally:
        server.kill()
        server.communicate()


def answers(connection: socket.socket, word: bytes) -> bool:
    connection.sendall(word)
    received = b""
    while len(received) < len(word) and (part := connection.recv(len(word))):
        received += part
    return received == word


@pytest.mark.parametrize(
    ("kept", "dropped", "family"), [(FOUR, SIX, "IPv4"), (SIX, FOUR, "IPv6")], ids=["IPv4 stays", "IPv6 stays"]
)
@pytest.mark.usefixtures("echo")
def test_a_connection_over_the_family_that_stays_survives(
    cloud: RealCloud, kept: str, dropped: str, family: str
) -> None:
    listeners, targets = [{"port": 80, "targetPort": 30080}], [{"address": "127.0.0.1"}]
    body = load_balancer(families=["IPv4", "IPv6"], listeners=listeners, targets=targets)
    status, item = cloud.call("POST", LBS, body)
    assert (status, [one["address"] for one in item["addresses"]]) == (201, [FOUR, SIX])
    path = f"{LBS}/{item['id']}"
    with cloud.connect(kept) as stays, cloud.connect(dropped) as ends:
        assert answers(stays, b"before")
        assert answers(ends, b"before")
        status, patched = cloud.call("PATCH", path, {"families": [family]})
        assert (status, [one["address"] for one in patched["addresses"]]) == (200, [kept])
        assert answers(stays, b"without the other family")
        with pytest.raises(ConnectionResetError):
            ends.recv(1)
        with pytest.raises(OSError):  # noqa: PT011 - refused or unreachable, as the kernel likes
            cloud.connect(dropped)
        assert dropped not in cloud.addresses()
        # The address is free: another load balancer gets it, and the first one the next.
        other = "IPv6" if family == "IPv4" else "IPv4"
        status, second = cloud.call("POST", LBS, load_balancer(uid="u2", families=[other], listeners=listeners))
        assert (status, second["addresses"][0]["address"]) == (201, dropped)
        status, both = cloud.call("PATCH", path, {"families": [family, other]})
        assert (status, both["addresses"][0]["address"], both["generation"]) == (200, kept, 3)
        back = both["addresses"][1]["address"]
        assert back not in (kept, dropped)
        with cloud.connect(back) as again:
            assert answers(again, b"over the family that came")
        assert answers(stays, b"after")
    status, full = cloud.call("POST", LBS, load_balancer(uid="u3", families=[family], listeners=listeners))
    assert status == 201, full
    status, refused = cloud.call("PATCH", f"{LBS}/{full['id']}", {"families": [family, other]})
    assert (status, [one["field"] for one in refused["errors"]]) == (409, ["families[1]"])
