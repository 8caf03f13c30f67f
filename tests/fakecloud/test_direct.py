"""Delivery by routing, in namespaces: a client, the cloud as a router, and two nodes that hold the address themselves."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakecloud.clients import Process, load_balancer, run_fakecloud
from tests.fakecloud.enclosed import LBS, Cloud, Servers, fetch, needs_netlink, until
from tests.fakecloud.namespaces import connect, namespaces, run, within

VIP = "10.99.0.1"
CLIENT = "10.70.0.2"


class Scene:
    def __init__(self, client: str, cloud: str, nodes: list[str]) -> None:
        self.client = client
        self.cloud = cloud
        self.nodes = nodes


@pytest.fixture
def scene() -> Iterator[Scene]:
    with namespaces("client", "cloud", "one", "two") as (client, cloud, *nodes):
        connect(client, cloud, f"{CLIENT}/24", "10.70.0.1/24")
        run("ip", "-n", client, "route", "add", "default", "via", "10.70.0.1")
        for number, node in enumerate(nodes, 1):
            connect(node, cloud, f"10.7{number}.0.2/24", f"10.7{number}.0.1/24")
            run("ip", "-n", node, "route", "add", "default", "via", f"10.7{number}.0.1")
            run("ip", "-n", node, "addr", "add", f"{VIP}/32", "dev", "lo")
        run(*within(cloud), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        yield Scene(client, cloud, nodes)


@needs_netlink
def test_packets_are_routed_to_healthy_nodes_and_no_socket_of_ours_carries_them(
    tmp_path: Path,
    process: Process,
    scene: Scene,
    servers: Servers,
) -> None:
    health = [servers.start(node, "health", f"10.7{n}.0.2", 30080) for n, node in enumerate(scene.nodes, 1)]
    for name, node in zip(("one", "two"), scene.nodes, strict=True):
        servers.start(node, name, VIP, 80)
        servers.start(node, f"{name}-other", VIP, 81)
    arguments = ("--addresses", "interface", "--delivery", "direct", "--pool", "10.99.0.0/24", "--token", "t")
    cloud = Cloud(scene.cloud, process.start(tmp_path, *arguments, prefix=within(scene.cloud)))
    body = load_balancer(
        listeners=[{"port": 80, "targetPort": 30080}],
        targets=[{"address": "10.71.0.2"}, {"address": "10.72.0.2"}],
        healthCheck={"intervalSeconds": 0.1, "timeoutSeconds": 60, "unhealthyThreshold": 1, "healthyThreshold": 1},
    )
    status, item = cloud.call("POST", LBS, body)
    assert (status, item["addresses"][0]["address"]) == (201, VIP)
    path = f"{LBS}/{item['id']}"

    def answers(count: int = 24) -> Counter[str]:
        return Counter(fetch(scene.client, VIP, 80) for _ in range(count))

    # The node sees the client itself, and the address that the client asked for.
    assert set(answers()) == {f"one {CLIENT} {VIP}", f"two {CLIENT} {VIP}"}
    held = subprocess.check_output([*within(scene.cloud), "ss", "-Htuan"], text=True)
    assert VIP not in held
    assert VIP not in run("ip", "-n", scene.cloud, "addr")
    # A port that is no listener's does not pass, though the nodes would answer.
    assert fetch(scene.client, VIP, 81, patience=1) == "TimeoutError"
    (listener,) = cloud.call("GET", path)[1]["status"]["listeners"]
    assert (listener["open"], listener["bytesIn"] > 0) == (True, True)

    health[0].kill()
    until(lambda: cloud.call("GET", path)[1]["status"]["targets"][0]["healthy"] is False)
    assert set(answers(8)) == {f"two {CLIENT} {VIP}"}
    servers.start(scene.nodes[0], "health", "10.71.0.2", 30080)
    until(lambda: len(answers(8)) == 2)

    cloud.call("PATCH", path, {"sourceRanges": ["10.50.0.0/16"]})
    assert fetch(scene.client, VIP, 80, patience=1) == "TimeoutError"
    cloud.call("PATCH", path, {"sourceRanges": ["10.70.0.0/16"]})
    assert fetch(scene.client, VIP, 80).split()[1] == CLIENT

    fault = cloud.call("POST", "/v1/faults", {"effect": {"kind": "refuse"}, "match": {"address": VIP}})[1]
    assert fetch(scene.client, VIP, 80) == "ConnectionRefusedError"
    cloud.call("DELETE", f"/v1/faults/{fault['id']}")
    assert fetch(scene.client, VIP, 80).split()[1] == CLIENT

    refused = cloud.call("PATCH", path, {"listeners": [{"port": 80, "targetPort": 30080, "proxyProtocol": "v2"}]})
    assert (refused[0], [one["field"] for one in refused[1]["errors"]]) == (422, ["listeners[0].proxyProtocol"])

    cloud.call("DELETE", path)
    assert VIP not in run("ip", "-n", scene.cloud, "route")
    cloud.call("POST", LBS, body)
    assert VIP in run("ip", "-n", scene.cloud, "route")
    assert process.end()[0] == 0
    assert VIP not in run("ip", "-n", scene.cloud, "route")
    assert "fwmark" not in run("ip", "-n", scene.cloud, "rule")
    assert "via 10.71.0.2 " not in run("ip", "-n", scene.cloud, "route", "show", "table", "all")
    tables = json.loads(run(*within(scene.cloud), "nft", "-j", "list", "tables"))["nftables"]
    assert [one for one in tables if "table" in one] == []


@needs_netlink
def test_a_machine_that_does_not_forward_is_told_how_to(tmp_path: Path) -> None:
    with namespaces("still") as (still,):
        command = [*within(still), *_serve()]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        assert (ended.returncode, "net.ipv4.ip_forward=1" in ended.stderr) == (2, True)


def test_direct_without_an_interface_is_one_clear_line() -> None:
    ended = run_fakecloud("serve", "--port", "0", "--delivery", "direct")
    assert (ended.returncode, "--addresses interface" in ended.stderr.splitlines()[-1]) == (2, True)


def _serve() -> list[str]:
    where = ["--addresses", "interface", "--delivery", "direct", "--pool", "10.99.0.0/24"]
    return [sys.executable, "-m", "fakecloud", "serve", "--port", "0", *where]
