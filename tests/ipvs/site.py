"""
A lab whose node is a virtual machine with kube-proxy in mode ipvs; everybody else is as in tests.packets.

A second node is a namespace with a pod behind it, for Services that have none on the first. It runs no kube-proxy and is in neither the
cluster nor the cloud.
"""

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import yaml

from tests.controlplane.server import ControlPlane
from tests.harness.controller import Controller
from tests.ipvs import interpreter
from tests.ipvs.machine import Machine
from tests.packets import cluster, lab, netns, serviceproxies, topology
from tests.packets.clients import http
from tests.packets.cluster import Barrier
from tests.packets.kubeproxy import settled
from tests.packets.lab import HostedCloud, Lab, Served
from tests.packets.pods import PORT, Pod
from tests.packets.relay import Relay
from tests.packets.serviceproxies import AZURE_EXAMPLE
from tests.packets.topology import CLIENT, LAN, POD_NETWORKS, lan_addresses, pod_addresses

_BALANCER: Final = "balancer"
_NODE: Final = "node1"
_NODE_ADDRESS: Final = lan_addresses(_NODE)[0]
OTHER_NODE: Final = "node2"
_POD: Final = "server1"
_OTHER_POD: Final = "server2"
_API_ADDRESS: Final = "172.30.0.1"
# Everything in the guest is emulated: one sync takes 4 to 8 s where nothing else runs, and ten times that on a busy machine.
TIMEOUT: Final = 600.0  # for a test, the first of which boots the guest; seconds, as all of these
_SYNCED: Final = 200.0
PATIENCE: Final = 20.0  # for an answer that comes
_SILENCE: Final = 8.0  # until an answer is taken not to come: the kernel alone would give it
# A process that has ended and that nobody has asked for keeps its number, not its command line.
_STOP: Final = """
kill $(cat /tmp/kube-proxy.pid)
while grep -q . /proc/$(cat /tmp/kube-proxy.pid)/cmdline 2>/dev/null; do sleep 0.1; done
"""
_METRICS: Final = "wget -qO- http://127.0.0.1:10249/metrics | grep _last_"
# Neither the kernel's own nor any of a test's, so that what is found later has been set.
_OTHER_TIMEOUTS: Final = "1000 200 400"
_INSIDE: Final = {"node": "", "pod": "ip netns exec caller1 "}


@dataclasses.dataclass
class Site(Lab):
    """The lab, and the node's command line."""

    machine: Machine = dataclasses.field(kw_only=True)
    _azure: str = dataclasses.field(default="", kw_only=True)

    async def settle(self) -> None:
        """
        Until kube-proxy has taken in all that was written to the API server so far.

        It makes virtual servers seconds before the rules that belong to them, so the sync has to have ended, and that after the
        barrier was not there yet: else it might be the one before.
        """
        wanted = [
            f"{socket.inet_aton(address).hex().upper()}:{port:04X}" for address, port in await self.barrier.raised()
        ]
        missing_at = 0.0
        try:
            async with asyncio.timeout(_SYNCED):
                while True:
                    # Rarely and with few programs: what looks runs where kube-proxy has to work.
                    servers = await self.machine.do("date +%s; cat /proc/net/ip_vs")
                    if not all(marker in servers for marker in wanted):
                        missing_at = float(servers.split()[0])
                    elif settled((await self.machine.run(_METRICS))[1], missing_at):
                        return
                    await asyncio.sleep(1.0)
        except TimeoutError:
            _, log = await self.machine.run("tail -n 15 /tmp/kube-proxy.log")
            raise AssertionError(f"kube-proxy has not synced {wanted} after {_SYNCED:g} s:\n{log}") from None

    async def configure(self, azure: str) -> None:
        """kube-proxy runs with what `ccm-lb dataplane convert` makes of this file of Azure's; it is started again if it is another."""
        if azure == self._azure:
            return
        await self.machine.do(_STOP)  # first, since it ends by itself when its file changes
        await _start(self.machine, azure)
        self._azure = azure
        await self.settle()


@dataclasses.dataclass(frozen=True)
class Sight:
    """
    What is seen of a Service's address: whether the node has it on kube-ipvs0, who was answered, whose request the load balancer
    counted, whether a probe that the load balancer sends from that address to the node port is answered, and what the modules of
    `ccm-lb dataplane probe` answer on the node.
    """

    bound: bool
    answered: frozenset[str]
    passed: frozenset[str]
    probe_answered: bool
    measured: str


async def sight(served: Served, site: Site) -> Sight:
    address = await served.address()
    answered, passed = set(), set()
    for client in (CLIENT, *_INSIDE):
        before = await served.flows(address, "TCP")
        if await _asks(site, client, address):
            answered.add(client)
        if await served.flows(address, "TCP") > before:
            passed.add(client)
    (port,) = (await served.get())["spec"]["ports"]
    bound = f" {address}/32 " in await site.machine.do("ip -4 addr show kube-ipvs0")
    probe_answered, measured = await asyncio.gather(
        _probed(site, address, port["nodePort"]),
        site.machine.do(f"{interpreter.PROBE} {address} 80 {_NODE_ADDRESS}"),
    )
    answer = measured.strip().splitlines()[-1].partition(":")[0]
    return Sight(bound, frozenset(answered), frozenset(passed), probe_answered, answer)


@dataclasses.dataclass(frozen=True)
class Got:
    """Which pod answered a client, empty for none, and whether the load balancer counted the connection."""

    pod: str
    passed: bool


async def got(served: Served, site: Site, client: str) -> Got:
    """What a client on the machine gets: `node`, in its own network, or `pod`."""
    address = await served.address()
    before = await served.flows(address, "TCP")
    # The pods of this folder speak HTTP or a word a line; this is a question to both.
    question = f"printf 'GET / HTTP/1.0\\r\\n\\n' | {_INSIDE[client]}timeout {_SILENCE:g} nc {address} 80"
    _, answer = await site.machine.run(question)
    pod = next((one for one in (_POD, _OTHER_POD) if one in answer), "")
    return Got(pod, await served.flows(address, "TCP") > before)


async def _asks(site: Site, client: str, address: str) -> bool:
    if client in _INSIDE:
        # Not wget's own -T: this static busybox crashes on it.
        code, _ = await site.machine.run(
            f"{_INSIDE[client]}timeout {PATIENCE:g} wget -q -O /dev/null http://{address}/"
        )
        return code == 0
    try:
        return (await http(site.hosts[client], address, 80, "/", PATIENCE))[0] == 200
    except (OSError, TimeoutError):
        return False


async def _probed(site: Site, own: str, node_port: int) -> bool:
    """Whether the node answers the load balancer's TCP probe from its own address."""
    with site.hosts[_BALANCER].bound(own, 0) as probe:
        try:
            async with asyncio.timeout(_SILENCE):
                await asyncio.get_running_loop().sock_connect(probe, (_NODE_ADDRESS, node_port))
        except (OSError, TimeoutError):
            return False
    return True


@contextlib.asynccontextmanager
async def running(
    plane: ControlPlane, kernel: Path, initramfs: Path, kubeconfig: Path, directory: Path
) -> AsyncIterator[Site]:
    """The whole site; everything of it is gone at the end."""
    async with contextlib.AsyncExitStack() as stack:
        hosts = netns.create([LAN, CLIENT, _BALANCER, OTHER_NODE, _OTHER_POD])
        for host in hosts.values():
            stack.callback(host.remove)
        _wire(hosts)
        port = int(plane.url.rpartition(":")[2])
        await stack.enter_async_context(Relay(hosts[LAN].bound(_API_ADDRESS, port), lab.outgoing))
        pod = await stack.enter_async_context(Pod(hosts[_OTHER_POD]))
        machine = await stack.enter_async_context(Machine(hosts[LAN], _NODE, kernel, initramfs, directory))
        kube = await stack.enter_async_context(plane.kube())
        cloud = await lab.hosted_cloud(stack, hosts[_BALANCER], directory)
        await kube.create("nodes", cluster.node(_NODE, [_NODE_ADDRESS]))
        stack.push_async_callback(kube.delete, "nodes", _NODE)
        await cloud.request("POST", "/v1/servers", {"id": _NODE, "name": _NODE, "addresses": [_NODE_ADDRESS]})
        barrier = Barrier(kube, ["IPv4"])
        await barrier.make()
        stack.push_async_callback(barrier.remove)
        await _furnish(machine, f"https://{_API_ADDRESS}:{port}", plane.token)
        await _start(machine, AZURE_EXAMPLE)
        controller = Controller(directory, kubeconfig, cloud.config(), "--leader-elect=false")
        await stack.enter_async_context(controller)
        await controller.start_ready()
        clouds: dict[str, HostedCloud] = {_BALANCER: cloud}
        made = Site("ipvs", kube, hosts, {}, clouds, {pod.name: pod}, barrier, machine=machine, _azure=AZURE_EXAMPLE)
        await made.settle()
        yield made


def _wire(hosts: dict[str, netns.Namespace]) -> None:
    names = {name: host.name for name, host in hosts.items()}
    lines = [
        *topology.bridge(names, [CLIENT, _BALANCER, OTHER_NODE]),
        f"addr add {_API_ADDRESS}/24 dev br0",
        f"tuntap add dev {_NODE} mode tap",
        f"link set {_NODE} master br0 up",
    ]
    hosts[LAN].run("ip", "-batch", "-", text="\n".join(lines))
    pod = "\n".join(topology.pod_links(_OTHER_POD, names))
    hosts[_OTHER_POD].run("ip", "-batch", "-", text=pod)
    hosts[OTHER_NODE].run("ip", "-batch", "-", text="\n".join(topology.node_side(_OTHER_POD)))
    for name in (CLIENT, _BALANCER, OTHER_NODE):
        hosts[name].run("ip", "-batch", "-", text="\n".join(topology.lan_links(name)))
    hosts[OTHER_NODE].sysctl(ipv4__ip_forward=1, ipv4__conf__all__rp_filter=0)


async def _furnish(machine: Machine, api: str, token: str) -> None:
    """Pods and routes, and what kube-proxy finds."""
    pool, gateway = topology.POOLS[_BALANCER][0], lan_addresses(_BALANCER)[0]
    pods = POD_NETWORKS[0]
    lines = [
        f"ip addr add {_NODE_ADDRESS}/24 dev eth0",
        f"ip route add {pool} via {gateway}",
        f"ip route add {pod_addresses(_OTHER_POD)[0]} via {lan_addresses(OTHER_NODE)[0]}",
        "sysctl -w net.ipv4.ip_forward=1",
        f"iptables -t nat -A POSTROUTING -s {pods} ! -d {pods} -o eth0 -j MASQUERADE",
    ]
    for pod, subnet in (("server1", 0), ("caller1", 64)):
        address, router = pod_addresses(pod)[0], f"10.244.1.{subnet + 1}"
        lines += [
            f"ip netns add {pod}",
            f"ip link add {pod} type veth peer name eth0 netns {pod}",
            f"ip addr add {router}/26 dev {pod}",
            f"ip link set {pod} up",
            f"ip -n {pod} addr add {address}/26 dev eth0",
            f"ip -n {pod} link set eth0 up",
            f"ip -n {pod} route add default via {router}",
        ]
    await machine.do("\n".join(lines))
    await machine.write("/srv/index.html", "server1")
    await machine.do(f"ip netns exec server1 httpd -p {pod_addresses('server1')[0]}:{PORT} -h /srv")
    await machine.write("/tmp/kubeconfig", yaml.safe_dump(_kubeconfig(api, token)))
    await machine.do(f"ipvsadm --set {_OTHER_TIMEOUTS}")


async def _start(machine: Machine, azure: str) -> None:
    configuration = serviceproxies.on_a_node(await serviceproxies.translated(azure), _additions())
    await machine.write("/tmp/config", yaml.safe_dump(configuration))
    await machine.do("kube-proxy --config /tmp/config -v=2 >>/tmp/kube-proxy.log 2>&1 & echo $! >/tmp/kube-proxy.pid")


def _kubeconfig(api: str, token: str) -> dict[str, object]:
    # The API server's certificate is for this machine's loopback, which the guest is not on.
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": {"server": api, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "admin"}}],
        "current-context": "lab",
    }


def _additions() -> dict[str, object]:
    """What a node adds to a translated configuration."""
    return {
        "hostnameOverride": _NODE,
        "clusterCIDR": POD_NETWORKS[0],
        "clientConnection": {"kubeconfig": "/tmp/kubeconfig"},
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": {"maxPerCore": 0, "min": 0},
        "ipvs": {"strictARP": True, "minSyncPeriod": "100ms"},
    }
