"""What `ccm-lb dataplane` makes of a configuration and says of a cluster, held against packets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import data
from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.data.applied import made
from tests.packets import clients, serviceproxies
from tests.packets.cluster import NAMESPACE
from tests.packets.lab import Lab, Served, healthy, outgoing
from tests.packets.relay import Relay
from tests.packets.rows import INSIDE, OUTSIDE, ROWS, View, other, view
from tests.packets.serviceproxies import dataplane
from tests.packets.topology import NODES, lan_addresses, pod_addresses

LOAD_BALANCER, SHORT_CUT, NOT_AT_ALL, UNKNOWN = (
    "through the load balancer",
    "straight to a pod",
    "not at all",
    "unknown",
)
ABSENT = "kube-proxy: absent: no DaemonSet in any namespace, no static pod, no agent that holds it"
KINDS = {OUTSIDE: "outside", INSIDE[0]: "node", INSIDE[1]: "pod"}

pytestmark = pytest.mark.timeout(240)  # the first test starts the lab
modes = pytest.mark.parametrize("ip_mode", ["VIP", "Proxy"])
# A cluster without kube-proxy is the same in the lab of either mode.
once = pytest.mark.parametrize("lab", ["nftables"], indirect=True)


def got(found: View) -> dict[str, str]:
    """By kind of client, what `explain` would call what it got; one address, one protocol."""
    ((_, by),) = found.seen.items()
    return {
        KINDS[client]: NOT_AT_ALL if seen.answer is None else LOAD_BALANCER if seen.passed else SHORT_CUT
        for client, seen in by.items()
    }


async def explained(served: Served, api: Path) -> tuple[Mapping[str, Any], dict[str, str]]:
    """The service proxy and what each kind of client gets, as `explain` says it."""
    said = (await dataplane("explain", f"{NAMESPACE}/{served.name}", "-o", "json", kubeconfig=api)).json()
    return said["proxy"], {one["client"]: one["path"] for one in said["clients"]}


async def probed(served: Served, lab: Lab, host: str, api: Path) -> tuple[int, set[str]]:
    """How `probe` on that host ends, and its answers."""
    said = await dataplane("probe", f"{NAMESPACE}/{served.name}", "-o", "json", host=lab.hosts[host], kubeconfig=api)
    return said.code, {one["answer"] for one in said.json()}


# ---- kube-proxy, configured by Azure's file


async def test_azures_file_is_translated_and_kube_proxy_routes_by_it_as_explain_says(
    lab: Lab, binaries: dict[str, Path], control_plane: ControlPlane, tmp_path: Path
) -> None:
    configuration = await serviceproxies.translated(json.dumps({"mode": lab.mode.upper()}))
    api = control_plane.kubeconfig
    async with (
        serviceproxies.with_translated(lab, configuration, binaries["kube-proxy"], tmp_path, api) as changed,
        made(lab.kube, configured(configuration)),
        changed.service("Proxy", proxy_protocol="v1") as served,
    ):
        for proxy in changed.proxies.values():
            assert await clients.http_body(proxy.node, "127.0.0.1", 10249, "/proxyMode") == lab.mode
        for ip_mode in ("Proxy", "VIP"):
            if ip_mode == "VIP":
                await served.switch(ip_mode)
            found = await view(served)
            ROWS["balancer", ip_mode](found)
            with pytest.raises(AssertionError):
                ROWS["balancer", other(ip_mode)](found)
            proxy_said, clients_said = await explained(served, api)
            assert (proxy_said["kind"], proxy_said["mode"]) == ("kube-proxy", lab.mode)
            assert clients_said == got(found)


def configured(configuration: data.Json) -> list[data.Json]:
    """A cluster's DaemonSet kube-proxy, and its ConfigMap with this configuration."""
    config_map, daemonset, _ = data.objects("kubeadm")
    return [{**config_map, "data": {"config.conf": yaml.safe_dump(configuration)}}, daemonset]


# ---- policy Local, from inside

CALLERS = {
    "node1": ("node", "node1"),
    "caller1": ("pod", "node1"),
    "node2": ("node", "node2"),
    "caller2": ("pod", "node2"),
}


async def got_on_each_node(served: Served) -> dict[tuple[str, str], str]:
    """By kind of client and its node, what `explain` would call what it got."""
    address, found = await served.address(), {}
    for host, client in CALLERS.items():
        before = await served.flows(address, "TCP")
        lost = await clients.unserved(served.lab.hosts[host], address, 80)
        passed = await served.flows(address, "TCP") > before
        found[client] = NOT_AT_ALL if lost else LOAD_BALANCER if passed else SHORT_CUT
    return found


async def explained_of_each_node(served: Served, api: Path) -> dict[tuple[str, str], str]:
    """The same, as `explain` says it."""
    said = (await dataplane("explain", f"{NAMESPACE}/{served.name}", "-o", "json", kubeconfig=api)).json()
    rows = [one for one in said["clients"] if one["client"] != "outside"]
    return {(one["client"], node): one["path"] for one in rows for node in one["nodes"] or NODES}


@modes
async def test_policy_local_does_not_bind_clients_inside_wherever_the_pods_are(
    lab: Lab, ip_mode: str, control_plane: ControlPlane
) -> None:
    # The pods' addresses are known to this kube-proxy, as its configuration says.
    configuration = {
        **(await serviceproxies.translated(json.dumps({"mode": lab.mode.upper()}))),
        "clusterCIDR": "10.244.0.0/16",
    }
    async with (
        made(lab.kube, configured(configuration)),
        lab.service(ip_mode, pods=("server1",), externalTrafficPolicy="Local") as served,
    ):
        await served.wait_balancer(lambda one: healthy(one) == {"node1": True, "node2": False})
        found = await got_on_each_node(served)
        assert found == dict.fromkeys(CALLERS.values(), {"VIP": SHORT_CUT, "Proxy": LOAD_BALANCER}[ip_mode])
        assert await explained_of_each_node(served, control_plane.kubeconfig) == found


async def test_a_kube_proxy_that_was_not_told_the_pods_addresses_binds_pods_to_policy_local_and_explain_says_so(
    lab: Lab, binaries: dict[str, Path], control_plane: ControlPlane, tmp_path: Path
) -> None:
    configuration = await serviceproxies.translated(json.dumps({"mode": lab.mode.upper()}))
    api = control_plane.kubeconfig
    async with (
        serviceproxies.with_translated(
            lab, configuration, binaries["kube-proxy"], tmp_path, api, knows_pods=False
        ) as changed,
        made(lab.kube, configured(configuration)),
        changed.service("VIP", pods=("server1",), externalTrafficPolicy="Local") as served,
    ):
        found = await got_on_each_node(served)
        assert found == {**dict.fromkeys(CALLERS.values(), SHORT_CUT), ("pod", "node2"): NOT_AT_ALL}
        assert await explained_of_each_node(served, api) == found


async def test_to_a_node_all_clients_of_a_load_balancer_that_connects_itself_are_one_and_affinity_keeps_it(
    lab: Lab, control_plane: ControlPlane
) -> None:
    async with (
        made(lab.kube, configured(await serviceproxies.translated(json.dumps({"mode": lab.mode.upper()})))),
        lab.service("Proxy", sessionAffinity="ClientIP") as served,
    ):
        (port,) = (await served.get())["spec"]["ports"]
        (node, _), balancer = lan_addresses("node1"), lab.hosts["balancer"]
        pods = {(await clients.ask(balancer, node, port["nodePort"])).pod for _ in range(12)}
        assert len(pods) == 1
        said = await dataplane("explain", f"{NAMESPACE}/{served.name}", kubeconfig=control_plane.kubeconfig)
        assert "all its clients are one to a node: sessionAffinity sends them to one pod" in said.out


# ---- no kube-proxy


@contextlib.asynccontextmanager
async def bare_metal(kube: Kube, *, agents: bool) -> AsyncIterator[None]:
    """GKE on bare metal without kube-proxy: its nodes, and its DaemonSets if `agents`."""
    *daemonsets, node = data.objects("gke-baremetal")
    for name in NODES:
        await kube.patch("nodes", name, {"status": node["status"]}, subresource="status")
    try:
        async with made(kube, daemonsets if agents else []):
            yield
    finally:
        for name in NODES:
            await kube.patch("nodes", name, {"status": {"nodeInfo": None}}, subresource="status")


@once
@pytest.mark.parametrize(
    ("takes_the_address", "ip_mode", "inside", "answer"),
    [(False, "VIP", LOAD_BALANCER, "load balancer"), (True, "Proxy", SHORT_CUT, "short-cut")],
    ids=["leaves-the-address-alone", "takes-the-address"],
)
async def test_without_kube_proxy_nothing_false_is_said_and_probe_finds_out(
    lab: Lab,
    takes_the_address: bool,  # noqa: FBT001
    ip_mode: str,
    inside: str,
    answer: str,
    control_plane: ControlPlane,
) -> None:
    api = control_plane.kubeconfig
    async with bare_metal(lab.kube, agents=True), lab.service(ip_mode, pods=("server1",)) as served:
        (port,) = (await served.get())["spec"]["ports"]
        rules = serviceproxies.replacement(
            await served.address(),
            port["nodePort"],
            pod_addresses("server1")[0],
            takes_the_address=takes_the_address,
        )
        async with serviceproxies.without_kube_proxy(lab), serviceproxies.ruled(lab, rules):
            # Between kube-proxy and its replacement the load balancer's probes have failed.
            await served.wait_balancer(lambda one: all(each["healthy"] for each in one["status"]["targets"]))
            assert got(await view(served)) == {"outside": LOAD_BALANCER, "node": inside, "pod": inside}

            verified, (proxy_said, clients_said), answered = await asyncio.gather(
                dataplane("verify", kubeconfig=api), explained(served, api), probed(served, lab, "node1", api)
            )
            assert (verified.code, verified.out.splitlines()[:2]) == (0, [ABSENT, "in its place: gke-dataplane-v2"])
            # Of this replacement nothing is known about ipMode, so nothing is promised, and nobody is warned on a guess.
            assert proxy_said["kind"] == "gke-dataplane-v2"
            assert clients_said == {"outside": LOAD_BALANCER, "node": UNKNOWN, "pod": UNKNOWN}
            assert not [one for one in await served.warnings() if "service proxy" in one]
            # The cluster can be asked.
            assert answered == (1, {answer}), "the ipMode says otherwise"


@once
async def test_with_nothing_in_kube_proxys_place_a_service_is_not_served_and_explain_and_verify_say_so(
    lab: Lab, control_plane: ControlPlane
) -> None:
    api = control_plane.kubeconfig
    async with (
        bare_metal(lab.kube, agents=False),
        lab.service("Proxy") as served,
        serviceproxies.without_kube_proxy(lab),
    ):
        found = got(await view(served))
        assert found == dict.fromkeys(KINDS.values(), NOT_AT_ALL)
        verified, (proxy_said, clients_said) = await asyncio.gather(
            dataplane("verify", kubeconfig=api), explained(served, api)
        )
        assert (verified.code, verified.out.splitlines()[:2]) == (1, [ABSENT, "in its place: none"])
        assert proxy_said["kind"] == "none"
        assert clients_said == found


@once
async def test_the_cloud_asks_kube_proxy_whether_a_node_is_well_and_takes_out_those_where_it_is_gone(lab: Lab) -> None:
    async with lab.service("Proxy") as served:
        await served.configure(healthCheck={"protocol": "http", "port": 10256, "path": "/healthz"})
        await served.wait_balancer(lambda one: healthy(one) == dict.fromkeys(NODES, True))
        async with serviceproxies.without_kube_proxy(lab):
            await served.wait_balancer(lambda one: healthy(one) == dict.fromkeys(NODES, False))
        await served.wait_balancer(lambda one: healthy(one) == dict.fromkeys(NODES, True))


# ---- asking the kernel


@modes
async def test_probe_on_a_node_says_whether_the_address_is_short_cut_there(
    lab: Lab, ip_mode: str, control_plane: ControlPlane
) -> None:
    async with lab.service(ip_mode, families=("IPv4", "IPv6")) as served:
        answer = {"VIP": "short-cut", "Proxy": "load balancer"}[ip_mode]
        assert await probed(served, lab, "node1", control_plane.kubeconfig) == (0, {answer})


@once
async def test_probe_in_a_pods_own_network_cannot_tell_and_does_not_guess(
    lab: Lab, control_plane: ControlPlane
) -> None:
    pod = lab.hosts["caller1"]
    api_port = int(control_plane.url.rpartition(":")[2])
    # The node behind the pod does short-cut it.
    async with lab.service("VIP") as served, Relay(pod.bound("127.0.0.1", api_port), outgoing):
        assert await probed(served, lab, "caller1", control_plane.kubeconfig) == (3, {"cannot tell"})
