"""A cluster of two nodes with the genuine kube-proxy, two clouds, a controller for each, pods and clients."""

import asyncio
import contextlib
import dataclasses
import itertools
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.harness import objects
from tests.harness.cloud import Fakecloud
from tests.harness.controller import Controller
from tests.packets import cluster, netns, topology
from tests.packets.cluster import FAMILIES, NAMESPACE, SETTLE, SLICES, Barrier, Json
from tests.packets.kubeproxy import KubeProxy
from tests.packets.netns import HostProcess, Namespace
from tests.packets.pods import PORT, Pod
from tests.packets.relay import Relay

IP_MODE = "ccm-lb.dev/ip-mode"
PROXY_PROTOCOL = "ccm-lb.dev/proxy-protocol"
PROXY_PROTOCOL_PORTS = "ccm-lb.dev/proxy-protocol-ports"
_LOOPBACK = "127.0.0.1"
# How each cloud delivers, and the class of the Services that are its controller's.
DELIVERY = {"balancer": "proxy", "router": "direct"}
CLASSES = {"balancer": None, "router": "lab.test/router"}


class HostedCloud(Fakecloud):
    """fakecloud on a host of the lab; its API is on that host's loopback, where a relay brings the controller."""

    def __init__(self, host: Namespace, directory: Path, *flags: str) -> None:
        v4, v6 = topology.POOLS[host.host]
        super().__init__(directory, "--addresses=interface", f"--pool={v6}", *flags, pool=v4)
        self._process = HostProcess(host, "fakecloud", self._process._command, directory / "fakecloud.log")


@dataclasses.dataclass
class Lab:
    """What a test works with."""

    mode: str
    kube: Kube
    hosts: Mapping[str, Namespace]
    proxies: Mapping[str, KubeProxy]
    clouds: Mapping[str, HostedCloud]
    pods: Mapping[str, Pod]
    barrier: Barrier
    _names: "itertools.count[int]" = dataclasses.field(default_factory=itertools.count)

    @contextlib.asynccontextmanager
    async def service(
        self,
        ip_mode: str | None,
        *,
        cloud: str = "balancer",
        families: Sequence[str] = ("IPv4",),
        protocols: Sequence[str] = ("TCP",),
        pods: Sequence[str] = ("server1", "server2"),
        target_port: int = PORT,
        proxy_protocol: str = "none",
        annotations: Mapping[str, str] = {},
        beside: Mapping[int, int] = {},
        **spec: object,
    ) -> AsyncIterator["Served"]:
        """
        A Service with its address, which every node's kube-proxy knows; gone at the end of the block.

        `beside` are TCP ports besides port 80, with the pods' ports for them.
        """
        if cloud not in self.clouds:
            pytest.skip(f"this fakecloud does not offer --delivery {DELIVERY[cloud]}")
        name = f"web-{self.mode}-{next(self._names)}"
        chosen = {PROXY_PROTOCOL: proxy_protocol, **({IP_MODE: ip_mode} if ip_mode else {}), **annotations}
        body = cluster.service(name, families, protocols, chosen)
        more = [(f"tcp-{port}", port, at) for port, at in beside.items()]
        body["spec"]["ports"] += [{"name": it, "port": port, "targetPort": at} for it, port, at in more]
        body["spec"] |= {**spec, **({"loadBalancerClass": CLASSES[cloud]} if CLASSES[cloud] else {})}
        ports = cluster.slice_ports(protocols, target_port) + [{"name": it, "port": at} for it, _, at in more]
        for each in cluster.endpoint_slices(name, ports, dict.fromkeys(families, pods)):
            await self.kube.create(SLICES, each, NAMESPACE)
        made = await self.kube.create("services", body, NAMESPACE)
        served = Served(self, name, made["metadata"]["uid"], cloud, tuple(protocols), tuple(families))
        try:
            await served.wait(lambda service: len(objects.ingress(service)) == len(families))
            await self.settle()
            yield served
        finally:
            await served.remove()

    async def settle(self) -> None:
        """Until both kube-proxies have taken in all that was written to the API server so far."""
        markers = await self.barrier.raised()
        for proxy in self.proxies.values():
            await proxy.wait_synced(markers)

    async def naming(self, *words: str) -> dict[str, list[str]]:
        """The rules of all kube-proxies that name each of these addresses or ports."""
        found = await asyncio.gather(*(proxy.naming(*words) for proxy in self.proxies.values()))
        return {word: [line for one in found for line in one[word]] for word in words}


@dataclasses.dataclass
class Served:
    """One Service of the lab."""

    lab: Lab
    name: str
    uid: str
    cloud: str
    protocols: Sequence[str]
    families: Sequence[str]

    async def get(self) -> Json:
        return await self.lab.kube.get("services", self.name, NAMESPACE)

    async def addresses(self) -> list[str]:
        """The published ones."""
        return [one["ip"] for one in objects.ingress(await self.get())]

    async def modes(self) -> set[str]:
        """The published ipModes."""
        return {one["ipMode"] for one in objects.ingress(await self.get())}

    async def address(self) -> str:
        """The only one, or the first."""
        return (await self.addresses())[0]

    async def wait(self, until: Callable[[Json | None], object]) -> Json:
        found = await self.lab.kube.wait_for("services", self.name, until, NAMESPACE, timeout=SETTLE)
        assert found is not None
        return found

    async def patch(self, patch: Json) -> None:
        await self.lab.kube.patch("services", self.name, patch, NAMESPACE)

    async def switch(self, ip_mode: str) -> None:
        """The other ipMode, published and taken in by the nodes."""
        await self.patch({"metadata": {"annotations": {IP_MODE: ip_mode}}})
        await self.wait(lambda service: {one["ipMode"] for one in objects.ingress(service)} == {ip_mode})
        await self.lab.settle()

    async def move(self, *pods: str) -> None:
        """Other endpoints."""
        ports = cluster.slice_ports(self.protocols)
        for each in cluster.endpoint_slices(self.name, ports, dict.fromkeys(self.families, pods)):
            await self.lab.kube.patch(SLICES, each["metadata"]["name"], {"endpoints": each["endpoints"]}, NAMESPACE)
        await self.lab.settle()

    async def balancer(self) -> Json:
        """What the cloud has for it."""
        found = await self.lab.clouds[self.cloud].load_balancer(self.uid)
        assert found is not None, f"no load balancer of {self.name}"
        return found

    async def flows(self, address: str, protocol: str) -> int:
        """How many connections, or for UDP exchanges of datagrams, have passed the load balancer at that address so far."""
        listeners = (await self.balancer())["status"]["listeners"]
        return sum(one["connections"] for one in listeners if (one["address"], one["protocol"]) == (address, protocol))

    async def wait_balancer(self, until: Callable[[Json], object]) -> Json:
        """The load balancer once `until` holds for it."""
        seen: Json = {}
        try:
            async with asyncio.timeout(SETTLE):
                while not until(seen := await self.balancer()):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"the load balancer after {SETTLE:g} s: {seen}") from None
        return seen

    async def configure(self, **settings: object) -> None:
        """Settings of the load balancer that the controller leaves to the cloud."""
        path = f"/v1/load-balancers/{(await self.balancer())['id']}"
        await self.lab.clouds[self.cloud].request("PATCH", path, settings)

    async def warnings(self) -> list[str]:
        """What the controller has warned the Service's user of."""
        events = await self.lab.kube.list("events", NAMESPACE, fieldSelector=f"involvedObject.uid={self.uid}")
        return [one["message"] for one in events if one["type"] == "Warning"]

    async def wait_warning(self, words: str) -> None:
        """Until the controller has warned with these words."""
        try:
            async with asyncio.timeout(SETTLE):
                while not any(words in message for message in await self.warnings()):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"no {words!r} among {await self.warnings()}") from None

    async def remove(self) -> None:
        """Delete it; it is gone when its load balancer is."""
        await self.lab.kube.delete("services", self.name, NAMESPACE)
        await self.lab.kube.wait_for("services", self.name, lambda found: found is None, NAMESPACE, timeout=SETTLE)
        for family in FAMILIES:
            await self.lab.kube.delete(SLICES, f"{self.name}-{family.lower()}", NAMESPACE)


@contextlib.asynccontextmanager
async def running(
    mode: str, plane: ControlPlane, kube_proxy: Path, kubeconfig: Path, directory: Path
) -> AsyncIterator[Lab]:
    """The whole lab for one proxy mode; everything of it is gone at the end, the objects in the API server too."""
    async with contextlib.AsyncExitStack() as stack:
        hosts = netns.create(topology.HOSTS)
        for host in hosts.values():
            stack.callback(host.remove)
        wire(hosts)
        kube = await stack.enter_async_context(plane.kube())
        offered = [name for name in topology.CLOUDS if DELIVERY[name] in _deliveries()]
        clouds = {name: await hosted_cloud(stack, hosts[name], directory) for name in offered}
        await _join(stack, kube, clouds)
        barrier = Barrier(kube)
        await barrier.make()
        stack.push_async_callback(barrier.remove)
        port = int(plane.url.rpartition(":")[2])
        proxies: dict[str, KubeProxy] = {}
        for name in topology.NODES:
            relay = Relay(hosts[name].bound(_LOOPBACK, port), outgoing)
            await stack.enter_async_context(relay)
            proxy = KubeProxy(kube_proxy, hosts[name], mode, directory, plane.kubeconfig)
            proxies[name] = await stack.enter_async_context(proxy)
        for name, cloud in clouds.items():
            flags = ["--handle-unclassed=false", f"--load-balancer-class={CLASSES[name]}"] if CLASSES[name] else []
            flags.append(f"--leader-elect-resource-name={name}")  # its finalizers are told from the other one's by it
            config = cloud.config()
            controller = Controller(directory, kubeconfig, config, "--leader-elect=false", *flags, name=f"ccm-{name}")
            await stack.enter_async_context(controller)
            await controller.start_ready()
        pods = {name: await stack.enter_async_context(Pod(hosts[name])) for name in topology.PODS if "server" in name}
        lab = Lab(mode, kube, hosts, proxies, clouds, pods, barrier)
        await lab.settle()
        yield lab


def wire(hosts: Mapping[str, Namespace]) -> None:
    """Links, addresses and routes of all hosts."""
    names = {name: host.name for name, host in hosts.items()}

    def ip(host: str, lines: Iterable[str]) -> None:
        hosts[host].run("ip", "-batch", "-", text="\n".join(lines))

    ip(topology.LAN, topology.bridge(names))
    for pod in topology.PODS:
        ip(pod, topology.pod_links(pod, names))
        ip(topology.node_of(pod), topology.node_side(pod))
    for name in (topology.CLIENT, *topology.CLOUDS, *topology.NODES):
        ip(name, topology.lan_links(name))
    for name in (*topology.NODES, *topology.CLOUDS):
        hosts[name].sysctl(ipv4__ip_forward=1, ipv4__conf__all__rp_filter=0, ipv6__conf__all__forwarding=1)
    for name in topology.NODES:
        hosts[name].run("nft", "-f", "-", text=topology.network_plugin(name))


async def hosted_cloud(stack: contextlib.AsyncExitStack, host: Namespace, directory: Path) -> HostedCloud:
    """A cloud that runs until the stack is closed, with its relay."""
    folder = directory / host.host
    folder.mkdir()
    delivery = DELIVERY[host.host]
    cloud = HostedCloud(host, folder, *([f"--delivery={delivery}"] if delivery != "proxy" else []))
    await stack.enter_async_context(Relay(_listening(cloud.port), lambda: host.open_socket(_LOOPBACK)))
    return await stack.enter_async_context(cloud)


def _deliveries() -> Sequence[str]:
    """What fakecloud offers besides `proxy`, its default."""
    command = [sys.executable, "-m", "fakecloud", "serve", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return ("proxy", "direct") if "--delivery" in told else ("proxy",)


async def _join(stack: contextlib.AsyncExitStack, kube: Kube, clouds: Mapping[str, HostedCloud]) -> None:
    """Nodes in the cluster, and their machines in the clouds; one lists its IPv4 address first and the other its IPv6 address."""
    for number, name in enumerate(topology.NODES):
        addresses = topology.lan_addresses(name)[:: -1 if number % 2 else 1]
        await kube.create("nodes", cluster.node(name, addresses))
        stack.push_async_callback(kube.delete, "nodes", name)
        server = {"id": name, "name": name, "addresses": list(addresses)}
        for cloud in clouds.values():
            await cloud.request("POST", "/v1/servers", server)


def _listening(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((_LOOPBACK, port))
    return made


def healthy(balancer: Json) -> Mapping[str, bool | None]:
    """Node: what the load balancer's probes say of it."""
    return {one["target"]: one["healthy"] for one in balancer["status"]["targets"]}


def outgoing() -> socket.socket:
    """A non-blocking socket of this machine itself."""
    made = socket.socket()
    made.setblocking(False)
    return made
