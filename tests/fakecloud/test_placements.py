"""The three placements: a process on a host, a pod with the host's network and real addresses, and a plain pod with one address."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.fakecloud.clients import Json, Process, load_balancer, run_fakecloud
from tests.fakecloud.enclosed import LBS, Cloud, Servers, fetch, needs_netlink
from tests.fakecloud.namespaces import addresses_in, connect, namespaces, within

ROOT = Path(__file__).parents[2]


def with_rights(*capabilities: str) -> list[str]:
    """A prefix for commands: a root that may do nothing but this, as in a container that drops all capabilities."""
    kept = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    return ["setpriv", "--bounding-set", kept, "--inh-caps", "-all", "--no-new-privs"]


def overlay_pod() -> Json:
    """The Pod of fakecloud in manifests/overlays/fakecloud."""
    text = (ROOT / "manifests" / "overlays" / "fakecloud" / "fakecloud.yaml").read_text()
    (deployment,) = [one for one in yaml.safe_load_all(text) if one["kind"] == "Deployment"]
    pod: Json = deployment["spec"]["template"]["spec"]
    return pod


@needs_netlink
def test_interface_gives_real_addresses_in_both_families_to_clients_elsewhere(
    tmp_path: Path, process: Process, servers: Servers
) -> None:
    with namespaces("cloud", "client") as (cloud_side, client_side):
        connect(client_side, cloud_side, "10.70.0.2/24", "10.70.0.1/24")
        for side, address in ((cloud_side, "fd70::1/64"), (client_side, "fd70::2/64")):
            (link,) = [
                one["ifname"]
                for one in json.loads(subprocess.check_output(["ip", "-n", side, "-j", "link"]))
                if one["ifname"] != "lo"
            ]
            subprocess.run(["ip", "-n", side, "addr", "add", address, "dev", link, "nodad"], check=True)
        for family, network, gateway in (("-4", "10.99.0.0/24", "10.70.0.1"), ("-6", "fd99::/120", "fd70::1")):
            subprocess.run(["ip", family, "-n", client_side, "route", "add", network, "via", gateway], check=True)
        servers.start(cloud_side, "four", "127.0.0.1", 30080)
        arguments = ("--addresses", "interface", "--pool", "10.99.0.0/24", "--pool", "fd99::/120", "--token", "t")
        cloud = Cloud(cloud_side, process.start(tmp_path, *arguments, prefix=within(cloud_side)))
        listeners = [{"port": 80, "targetPort": 30080}]
        body = load_balancer(families=["IPv4", "IPv6"], listeners=listeners, targets=[{"address": "127.0.0.1"}])
        status, item = cloud.call("POST", LBS, body)
        assert (status, [one["address"] for one in item["addresses"]]) == (201, ["10.99.0.1", "fd99::1"])
        for address in ("10.99.0.1", "fd99::1"):
            assert fetch(client_side, address, 80).split()[0] == "four"
        assert {"10.99.0.1", "fd99::1"} <= addresses_in(cloud_side)
        assert cloud.call("DELETE", f"{LBS}/{item['id']}")[0] == 204
        assert not {"10.99.0.1", "fd99::1"} & addresses_in(cloud_side)
        cloud.call("POST", LBS, body)
        assert process.end()[0] == 0
        assert not {"10.99.0.1", "fd99::1"} & addresses_in(cloud_side)


def test_a_process_on_a_host_serves_clients_on_that_host_alone(
    tmp_path: Path, process: Process, servers: Servers
) -> None:
    with namespaces("host", "other") as (host, other):
        connect(other, host, "10.70.0.2/24", "10.70.0.1/24")
        subprocess.run(["ip", "-n", other, "route", "add", "default", "via", "10.70.0.1"], check=True)
        servers.start(host, "one", "127.0.0.1", 30080)
        cloud = Cloud(host, process.start(tmp_path, "--token", "t", prefix=[*within(host), *with_rights()]))
        status, item = cloud.call("POST", LBS, load_balancer(targets=[{"address": "127.0.0.1"}]))
        address = item["addresses"][0]["address"]
        assert (status, address) == (201, "127.84.0.1")
        assert fetch(host, address, 8080).split()[0] == "one"
        # To anybody else that address is himself.
        assert fetch(other, address, 8080) == "ConnectionRefusedError"


@needs_netlink
def test_the_overlays_pod_serves_clients_elsewhere_with_no_right_but_those_that_it_names(
    tmp_path: Path, process: Process, servers: Servers
) -> None:
    pod = overlay_pod()
    (container,) = pod["containers"]
    security = container["securityContext"]
    assert (pod["hostNetwork"], security["capabilities"]["drop"], security["runAsUser"]) == (True, ["ALL"], 0)
    assert set(security["capabilities"]["add"]) == {"NET_ADMIN", "NET_BIND_SERVICE"}
    (pool,) = [one.removeprefix("--pool=") for one in container["command"] if one.startswith("--pool=")]
    with namespaces("node", "client") as (node, client_side):
        connect(client_side, node, "10.70.0.2/24", "10.70.0.1/24")
        subprocess.run(["ip", "-n", client_side, "route", "add", pool, "via", "10.70.0.1"], check=True)
        servers.start(node, "one", "127.0.0.1", 30080)
        prefix = [*within(node), *with_rights(*security["capabilities"]["add"])]
        cloud = Cloud(node, process.start(tmp_path, *container["command"][2:], "--token", "t", prefix=prefix))
        listeners = [{"port": 80, "targetPort": 30080}, {"protocol": "UDP", "port": 53, "targetPort": 30053}]
        body = load_balancer(listeners=listeners, targets=[{"address": "127.0.0.1"}])
        status, item = cloud.call("POST", LBS, body)
        assert (status, [one["open"] for one in item["status"]["listeners"]]) == (201, [True, True])
        assert fetch(client_side, item["addresses"][0]["address"], 80).split()[0] == "one"
        assert cloud.call("DELETE", f"{LBS}/{item['id']}")[0] == 204
        assert item["addresses"][0]["address"] not in addresses_in(node)


@needs_netlink
def test_with_net_admin_alone_ports_from_1024_up_are_served(tmp_path: Path, process: Process, servers: Servers) -> None:
    with namespaces("node", "client") as (node, client_side):
        connect(client_side, node, "10.70.0.2/24", "10.70.0.1/24")
        subprocess.run(["ip", "-n", client_side, "route", "add", "203.0.113.0/24", "via", "10.70.0.1"], check=True)
        servers.start(node, "one", "127.0.0.1", 30080)
        arguments = ("--addresses", "interface", "--pool", "203.0.113.0/24", "--token", "t")
        prefix = [*within(node), *with_rights("NET_ADMIN")]
        cloud = Cloud(node, process.start(tmp_path, *arguments, prefix=prefix))
        status, item = cloud.call("POST", LBS, load_balancer(targets=[{"address": "127.0.0.1"}]))
        assert status == 201
        assert fetch(client_side, item["addresses"][0]["address"], 8080).split()[0] == "one"
        low = load_balancer(uid="u2", listeners=[{"port": 80, "targetPort": 30080}])
        status, refused = cloud.call("POST", LBS, low)
        assert (status, refused["errors"][0]["field"]) == (422, "listeners[0].port")
        assert "net.ipv4.ip_unprivileged_port_start" in refused["detail"]


def test_a_plain_pod_serves_all_on_its_one_address_without_any_right_and_refuses_a_port_twice(
    tmp_path: Path, process: Process, servers: Servers
) -> None:
    with namespaces("pod", "client") as (pod, client_side):
        connect(client_side, pod, "10.70.0.2/24", "10.70.0.1/24")
        servers.start(pod, "one", "127.0.0.1", 30080)
        state = ("--state", str(tmp_path / "cloud.db"), "--token", "t")
        arguments = ("--addresses", "shared", "--shared-address", "10.70.0.1", *state)
        cloud = Cloud(pod, process.start(tmp_path, *arguments, prefix=[*within(pod), *with_rights()]))

        def create(uid: str, port: int) -> tuple[int, Json]:
            listeners = [{"port": port, "targetPort": 30080}]
            return cloud.call(
                "POST", LBS, load_balancer(uid=uid, listeners=listeners, targets=[{"address": "127.0.0.1"}])
            )

        first, second = create("u1", 8081), create("u2", 8082)
        assert [one[1]["addresses"][0]["address"] for one in (first, second)] == ["10.70.0.1"] * 2
        assert [fetch(client_side, "10.70.0.1", port).split()[0] for port in (8081, 8082)] == ["one", "one"]
        status, refused = create("u3", 8081)
        assert (status, refused["errors"][0]["field"]) == (422, "listeners[0].port")
        servers.start(pod, "somebody else", "10.70.0.1", 8083)
        status, refused = create("u4", 8083)
        assert (status, refused["errors"][0]["field"]) == (422, "listeners[0].port")
        assert "in use" in refused["detail"]
        cloud.call("DELETE", f"{LBS}/{first[1]['id']}")
        assert create("u3", 8081)[0] == 201
        status, refused = cloud.call("POST", LBS, load_balancer(uid="u6", families=["IPv6"]))
        assert (status, refused["errors"][0]["field"]) == (422, "families[0]")
        assert "share one address" in refused["detail"]
        # The pod comes back elsewhere: its load balancers are where it is.
        process.end()
        subprocess.run(["ip", "-n", pod, "addr", "flush", "scope", "global"], check=True)
        connect(client_side, pod, "10.71.0.2/24", "10.71.0.1/24")
        moved = ("--addresses", "shared", "--shared-address", "10.71.0.1", *state)
        process.start(tmp_path, *moved, prefix=within(pod))
        assert fetch(client_side, "10.71.0.1", 8082).split()[0] == "one"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--addresses", "interface"], ["--pool"], id="interface without a pool"),
        pytest.param(
            ["--addresses", "interface", "--pool", "10.9.0.0/24", "--interface", "nope0"],
            ["nope0"],
            id="no interface",
            marks=needs_netlink,
        ),
        pytest.param(["--addresses", "shared", "--pool", "10.9.0.0/24"], ["--shared-address"], id="shared with a pool"),
        pytest.param(["--shared-address", "10.0.0.1"], ["--addresses shared"], id="shared address without shared"),
        pytest.param(["--addresses", "shared", "--shared-address", "::1"], ["::1", "IPv4"], id="shared IPv6"),
    ],
)
def test_a_placement_that_can_not_work_is_one_clear_line(arguments: list[str], words: list[str]) -> None:
    ended = run_fakecloud("serve", "--port", "0", *arguments)
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("Error: ")]
    assert (ended.returncode, [word for word in words if word not in line]) == (2, [])


@needs_netlink
def test_without_the_right_an_interface_address_is_refused_with_the_reason(tmp_path: Path, process: Process) -> None:
    with namespaces("weak") as (weak,):
        prefix = [*within(weak), "setpriv", "--bounding-set", "-net_admin"]
        arguments = ("--addresses", "interface", "--pool", "10.99.0.0/24", "--token", "t")
        cloud = Cloud(weak, process.start(tmp_path, *arguments, prefix=prefix))
        status, refused = cloud.call("POST", LBS, load_balancer())
        assert (status, "NET_ADMIN" in refused["detail"]) == (422, True)
