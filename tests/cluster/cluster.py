"""
A genuine cluster: a control plane, two nodes with containers, a cloud's router, and a client outside.

    client 198.51.100.2 --- router --- 192.168.84.0/24: control .10, node1 .11, node2 .12

Every packet between pods of different nodes goes by way of the router, which knows the nodes' pod networks as a cloud does. The
cluster's own processes are started as kubeadm starts them, its programs are those of `recipes.NODE`; each lives on a machine of
`machines.py`, and none on this one.
"""

import asyncio
import json
import secrets
import string
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from tests.cluster import images
from tests.cluster.machines import CONTAINERD, Machine, Node
from tests.controlplane import credentials, recipes
from tests.controlplane.kube import Kube
from tests.controlplane.process import Process
from tests.controlplane.server import ControlPlane, Site
from tests.packets.netns import HostProcess

Json = dict[str, Any]
Found = TypeVar("Found")

CONTROL: Final = "192.168.84.10"
ROUTER: Final = "192.168.84.1"
CLIENT: Final = "198.51.100.2"
NODES: Final = {"node1": "192.168.84.11", "node2": "192.168.84.12"}
POD_NETWORKS: Final = {"node1": "10.244.1.0/24", "node2": "10.244.2.0/24"}
POOL: Final = "203.0.113.0/24"  # the addresses of load balancers
_PODS: Final = "10.244.0.0/16"
_DNS: Final = "10.96.0.10"
_PAUSE: Final = "registry.k8s.io/pause:3.10"
_READY: Final = 120.0  # seconds for the nodes and what runs on them
_ADDONS: Final = Path(__file__).parent / "addons.yaml"
# Where Debian puts the plugins of CNI.
CNI_PLUGINS: Final = Path("/usr/lib/cni")


class ClusterError(Exception):
    """Something of the cluster did not come up."""


class Cluster:
    """`binaries` are of this `version`. `start` takes some 20 s, `close` ends everything. Nothing in it belongs to an event loop."""

    def __init__(self, binaries: Mapping[str, Path], version: str, directory: Path) -> None:
        self.version = version
        self._binaries = binaries
        self._directory = directory
        self._machines: list[Machine] = []
        self._processes: list[Process] = []
        self.router = self._host("router")
        self.client = self._host("client")
        self.control = self._host("control")
        self.nodes = {name: self._node(name) for name in NODES}
        self._wire()
        self._users = {
            "kube-controller-manager": ("system:kube-controller-manager", ""),
            "kube-scheduler": ("system:kube-scheduler", ""),
            **{name: (f"system:node:{name}", "system:nodes") for name in NODES},
        }
        self._tokens = {user: secrets.token_hex(16) for user in self._users}
        self.plane = ControlPlane(
            binaries,
            directory=directory / "controlplane",
            apiserver_flags=(
                "--authorization-mode=Node",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true",
                "--endpoint-reconciler-type=lease",
                "--kubelet-preferred-address-types=InternalIP",
                "--service-node-port-range=30000-32767",
            ),
            site=Site(CONTROL, self._on_control, lambda info: self.control.open_socket(info[4][0])),
            users={self._tokens[user]: identity for user, identity in self._users.items()},
        )

    def start(self, archives: Sequence[Path]) -> None:
        """Start everything; `archives` are images for every node, besides those of the cluster itself."""
        began = time.monotonic()
        for node in self.nodes.values():
            self._start_containerd(node)
        asyncio.run(self.plane.start())
        self._start_controllers()
        imported = [*self._own_images(), *archives]
        for node in self.nodes.values():
            for archive in imported:
                node.containerd("images", "import", str(archive))
        for name, node in self.nodes.items():
            self._start_kubelet(name, node)
        text = string.Template(_ADDONS.read_text()).substitute(
            pods=_PODS,
            dns=_DNS,
            server=self.plane.url,
            version=self.version,
            coredns=recipes.pinned("github.com/coredns/coredns", recipes.COREDNS),
        )
        self.kubectl("apply", "-f", "-", text=text)
        self._wait(lambda: self.kubectl("get", "nodes", "-o", "name").split(), lambda names: len(names) == len(NODES))
        self.kubectl("wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={_READY:g}s")
        self.kubectl("--namespace=kube-system", "rollout", "status", "daemonset/kube-proxy", f"--timeout={_READY:g}s")
        self.kubectl("--namespace=kube-system", "rollout", "status", "deployment/coredns", f"--timeout={_READY:g}s")
        print(f"\ncluster: two nodes with kube-proxy and CoreDNS after {time.monotonic() - began:.0f} s")

    def close(self) -> None:
        # Each machine ends what runs on it; what runs on a network alone has to be stopped.
        for machine in reversed(self._machines):
            machine.close()
        asyncio.run(self._stop())

    async def _stop(self) -> None:
        for process in self._processes:
            await process.stop()
        await self.plane.stop()

    def kube(self) -> Kube:
        """A cluster admin's client."""
        return self.plane.kube()

    def kubectl(self, *arguments: str, text: str = "", timeout: float = 150.0) -> str:
        """What `kubectl` prints for the cluster's admin. ClusterError with what it complains of."""
        return self.run([str(self._binaries["kubectl"]), *arguments], text=text, timeout=timeout)

    def run(self, command: Sequence[str], *, text: str = "", timeout: float = 150.0) -> str:
        """The same of any program that takes KUBECONFIG, on the network of the control plane."""
        environment = {"KUBECONFIG": str(self.plane.kubeconfig), "PATH": "/usr/bin:/bin", "HOME": str(self._directory)}
        with self.control.entered():
            running = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        with running:
            try:
                out, complaint = running.communicate(text, timeout)
            except subprocess.TimeoutExpired:
                running.kill()
                raise
        if running.returncode != 0:
            raise ClusterError(f"{' '.join(command)}: {complaint.strip()}\n{out.strip()}")
        return out

    def _host(self, name: str) -> Machine:
        self._machines.append(machine := Machine(name, self._directory))
        return machine

    def _node(self, name: str) -> Node:
        self._machines.append(machine := Node(name, self._directory))
        return machine

    def _on_control(self, name: str, command: Sequence[str], log: Path) -> Process:
        return HostProcess(self.control, name, command, log)

    def _wire(self) -> None:
        router = self.router
        router.run("ip", "link", "add", "br0", "type", "bridge")
        router.run("ip", "address", "add", f"{ROUTER}/24", "dev", "br0")
        router.run("ip", "link", "set", "br0", "up")
        router.sysctl(ipv4__ip_forward=1, ipv4__conf__all__rp_filter=0, ipv4__conf__default__rp_filter=0)
        router.sysctl(
            ipv4__conf__all__send_redirects=0, ipv4__conf__br0__send_redirects=0, ipv4__conf__br0__rp_filter=0
        )
        for name, address in {"control": CONTROL, **NODES}.items():
            machine = self.control if name == "control" else self.nodes[name]
            self._plug(machine, name, f"{address}/24", ROUTER)
            router.run("ip", "link", "set", name, "master", "br0")
        for name, network in POD_NETWORKS.items():
            router.run("ip", "route", "add", network, "via", NODES[name])
            self.nodes[name].sysctl(ipv4__ip_forward=1)
        gateway = f"{CLIENT.rpartition('.')[0]}.1"
        self._plug(self.client, "client", f"{CLIENT}/24", gateway)
        router.run("ip", "address", "add", f"{gateway}/24", "dev", "client")

    def _plug(self, machine: Machine, name: str, address: str, gateway: str) -> None:
        """A cable from the machine's eth0 to the router's interface of that name."""
        self.router.run(*f"ip link add {name} type veth peer name eth0 netns {machine.pid}".split())
        self.router.run("ip", "link", "set", name, "up")
        machine.run("ip", "address", "add", address, "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")
        machine.run("ip", "route", "add", "default", "via", gateway)

    def _start(self, process: Process) -> None:
        process.start()
        self._processes.append(process)

    def _start_containerd(self, node: Node) -> None:
        config, plugins = node.folder / "containerd.toml", node.folder / "cni"
        config.write_text(
            _CONTAINERD.substitute(folder=node.folder, pause=_PAUSE, cni=plugins, bin=CNI_PLUGINS, socket=CONTAINERD)
        )
        plugins.mkdir()
        (plugins / "10-pods.conflist").write_text(json.dumps(_pod_network(POD_NETWORKS[node.host])))
        self._start(node.process("containerd", ["containerd", "--config", str(config)]))
        self._wait(lambda: node.containerd("version"))

    def _start_controllers(self) -> None:
        folder = self.plane.directory
        common = [f"--cert-dir={folder / 'serving'}", "--bind-address=127.0.0.1", "--leader-elect=false"]
        managing = [
            "--use-service-account-credentials",
            f"--service-account-private-key-file={folder / 'sa.key'}",
            f"--root-ca-file={self.plane.ca}",
            # It wants the key of the CA, which the API server has made and forgotten.
            "--controllers=*,-kube-apiserver-serving-clustertrustbundle-publisher-controller",
        ]
        for name, more in (("kube-controller-manager", managing), ("kube-scheduler", [])):
            config = self._kubeconfig(name)
            flags = [
                f"--{flag}={config}" for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
            ]
            command = [str(self._binaries[name]), *flags, *common, *more]
            self._start(self._on_control(name, command, folder / f"{name}.log"))

    def _start_kubelet(self, name: str, node: Node) -> None:
        config, resolver = node.folder / "kubelet.yaml", node.folder / "resolv.conf"
        resolver.write_text(f"nameserver {ROUTER}\n")
        config.write_text(yaml.safe_dump(_kubelet_configuration(resolver)))
        command = [
            str(self._binaries["kubelet"]),
            f"--config={config}",
            f"--kubeconfig={self._kubeconfig(name)}",
            f"--hostname-override={name}",
            f"--node-ip={NODES[name]}",
        ]
        self._start(node.process("kubelet", command))

    def _kubeconfig(self, user: str) -> Path:
        content = credentials.kubeconfig(self.plane.url, self._tokens[user], self.plane.ca, user)
        return credentials.write_kubeconfig(self._directory / f"{user}.kubeconfig", content)

    def _own_images(self) -> list[Path]:
        folder, coredns = self._directory, recipes.pinned("github.com/coredns/coredns", recipes.COREDNS)
        proxy = {"/usr/local/bin/kube-proxy": self._binaries["kube-proxy"], **images.with_libraries("nft")}
        return [
            images.packed(folder / "pause.tar", _PAUSE, {"/pause": self._binaries["pause"]}, ["/pause"]),
            images.packed(
                folder / "coredns.tar",
                f"registry.k8s.io/coredns/coredns:v{coredns}",
                {"/coredns": self._binaries["coredns"]},
                ["/coredns"],
            ),
            images.packed(folder / "kube-proxy.tar", f"registry.k8s.io/kube-proxy:v{self.version}", proxy, []),
        ]

    def _wait(self, look: Callable[[], Found], until: Callable[[Found], object] = lambda _: True) -> Found:
        """What `look` finds, once it finds something that will do; what it raises meanwhile counts as nothing."""
        deadline, seen = time.monotonic() + _READY, ""
        while time.monotonic() < deadline:
            try:
                found = look()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told at the deadline
                seen = str(error)
            else:
                if until(found):
                    return found
                seen = repr(found)
            for process in self._processes:
                if process.pid is None:
                    raise ClusterError(f"{process.name} ended with {process.exit_code}:\n{process.last_words()}")
            time.sleep(0.1)
        raise ClusterError(f"not after {_READY:g} s: {seen}")


# Without the right to make a process less likely to be killed than itself, runc fails on a smaller oom_score_adj.
_CONTAINERD: Final = string.Template("""
version = 2
root = "$folder/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt",
]
[grpc]
  address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$pause"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$bin"
    conf_dir = "$cni"
""")


def _pod_network(network: str) -> Json:
    ipam = {"type": "host-local", "ranges": [[{"subnet": network}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": ipam},
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ],
    }


def _kubelet_configuration(resolver: Path) -> Json:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Nobody but this cluster reaches its port.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [_DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(resolver),
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "nodeStatusUpdateFrequency": "2s",
        # How full this machine's disk is, is none of the tests' business.
        "evictionHard": {
            "memory.available": "1Mi",
            **{f"{one}.{what}": "0%" for one in ("nodefs", "imagefs") for what in ("available", "inodesFree")},
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
