"""A whole cluster with a cloud: genuine API server, fakecloud, nodes that answer on their node ports, and controllers."""

import asyncio
import dataclasses
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.faultproxy.proxy import FaultProxy
from tests.harness import objects, pod
from tests.harness.backends import NodePorts, fetch
from tests.harness.cloud import Fakecloud
from tests.harness.controller import Controller

Json = dict[str, Any]
MANIFESTS = Path(__file__).parents[2] / "manifests"
ACCESS = ("base/serviceaccount.yaml", "base/rbac.yaml", "components/service-proxy/rbac.yaml")
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
SETTLE = 60.0  # seconds after which a test gives up waiting; no promise, a loaded machine may need them


@dataclasses.dataclass
class Stack:
    """What an integration test works with; `kube` is a cluster admin, the controllers run as their ServiceAccount."""

    plane: ControlPlane
    kube: Kube
    namespace: str
    cloud: Fakecloud
    node_ports: NodePorts
    directory: Path
    kubeconfig: Path
    network: str  # the first three numbers of the nodes' addresses

    def controller(
        self,
        *flags: str,
        kubeconfig: Path | None = None,
        cloud_url: str | None = None,
        name: str = "ccm-lb",
        mounts: pod.Mounts | None = None,
    ) -> Controller:
        """A replica, not started yet; `kubeconfig` and `cloud_url` put a proxy in between, `mounts` adds to its container."""
        config = self.cloud.config(cloud_url)
        return Controller(self.directory, kubeconfig or self.kubeconfig, config, *flags, name=name, mounts=mounts)

    def through(self, proxy: FaultProxy) -> Path:
        """The controller's kubeconfig with a fault proxy in front of the API server."""
        return proxy.kubeconfig(self.kubeconfig, self.directory / f"kubeconfig-{secrets.token_hex(4)}")

    # ---- nodes

    def address(self, node: str) -> str:
        """The InternalIP of the node n1, n2, ..."""
        return f"{self.network}.{int(node[1:]) + 10}"

    async def add_node(self, name: str) -> None:
        """A Node and the machine behind it, known to the cloud."""
        provider_id = f"{self.namespace}-{name}"
        await self.cloud.request(
            "POST", "/v1/servers", {"id": provider_id, "name": name, "addresses": [self.address(name)]}
        )
        body = objects.node(name, self.address(name), provider_id=f"fakecloud://{provider_id}")
        await self.kube.create("nodes", body)

    async def remove_node(self, name: str) -> None:
        """The Node goes, and its machine with it."""
        await self.kube.delete("nodes", name)
        await self.cloud.request("DELETE", f"/v1/servers/{self.namespace}-{name}")

    def servers(self, *names: str) -> list[str]:
        """What the cloud calls these nodes, sorted."""
        return sorted(f"{self.namespace}-{name}" for name in names)

    # ---- Services

    async def create(self, service: Json) -> Json:
        return await self.kube.create("services", service, self.namespace)

    async def get(self, name: str) -> Json:
        return await self.kube.get("services", name, self.namespace)

    async def patch(self, name: str, patch: Mapping[str, Any]) -> Json:
        return await self.kube.patch("services", name, patch, self.namespace, kind="merge")

    async def delete(self, name: str) -> None:
        await self.kube.delete("services", name, self.namespace)

    async def wait(self, name: str, until: Callable[[Json | None], object], timeout: float = SETTLE) -> Json:
        """The Service once `until` holds for it."""
        found = await self.kube.wait_for("services", name, until, self.namespace, timeout=timeout)
        return found or {}

    async def wait_served(self, name: str, timeout: float = SETTLE) -> Json:
        """The Service once it has an address."""
        return await self.wait(name, objects.ingress, timeout)

    async def wait_gone(self, name: str, timeout: float = SETTLE) -> None:
        await self.wait(name, lambda service: service is None, timeout)

    async def serve(self, service: Json, *nodes: str) -> None:
        """Answer on the Service's node ports of these nodes, with the node's name."""
        for port in service["spec"]["ports"]:
            for node in nodes:
                await self.node_ports.serve(self.address(node), port["nodePort"], node)

    # ---- waiting for the cloud

    async def wait_balanced(self, uid: str, until: Callable[[Json], object], timeout: float = SETTLE) -> Json:
        """The load balancer of a Service once `until` holds for it."""
        seen: Json | None = None
        try:
            async with asyncio.timeout(timeout):
                while not ((seen := await self.cloud.load_balancer(uid)) and until(seen)):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"the load balancer after {timeout:g} s: {seen}") from None
        return seen

    async def wait_unbalanced(self, timeout: float = SETTLE) -> None:
        """Wait until the cloud has no load balancer at all."""
        seen: Sequence[Json] = ()
        try:
            async with asyncio.timeout(timeout):
                while seen := await self.cloud.load_balancers():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"still there after {timeout:g} s: {seen}") from None

    async def events(self, name: str) -> list[tuple[str, str, str]]:
        """(type, reason, message) of a Service's events, in the order in which they first came."""
        found = await self.kube.list("events", self.namespace)
        ours = [one for one in found if one["involvedObject"]["name"] == name]
        # The API server's own repairs write events too, which have an eventTime instead.
        ours.sort(key=lambda one: (one["firstTimestamp"] or one["eventTime"], int(one["metadata"]["resourceVersion"])))
        return [(one["type"], one["reason"], one["message"]) for one in ours]

    async def wait_event(self, name: str, reason: str, timeout: float = SETTLE) -> tuple[str, str, str]:
        """The first event of that reason."""
        try:
            async with asyncio.timeout(timeout):
                while not (found := [one for one in await self.events(name) if one[1] == reason]):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"no {reason} after {timeout:g} s, but: {await self.events(name)}") from None
        return found[0]


async def answer(service: Json, port: int | None = None, timeout: float = SETTLE) -> str:
    """
    Who answers a client at the Service's published address.

    It is asked until it does: the cloud says that it has a listener or a target before the data plane carries to it.
    """
    address, wanted = objects.ingress(service)[0]["ip"], port or service["spec"]["ports"][0]["port"]
    failure: Exception | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    return await fetch(address, wanted)
                except (OSError, ValueError) as error:
                    failure = error
                    await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"nobody answers at {address}:{wanted} after {timeout:g} s: {failure!r}") from None


async def apply_access(kube: Kube) -> None:
    """The ServiceAccount and the Roles of the manifests, as an operator applies them."""
    for name in ACCESS:
        for document in yaml.safe_load_all((MANIFESTS / name).read_text()):
            await kube.apply(document)


async def apply_upstream_access(kube: Kube) -> None:
    """The account and the rights that Kubernetes' documentation gives the Go cloud-controller-manager, and its Lease."""
    account = {"metadata": {"name": "cloud-controller-manager"}}
    rights = {
        "events": ["create", "patch", "update"],
        "nodes": ["*"],
        "nodes/status": ["patch"],
        "services": ["list", "patch", "update", "watch"],
        "services/status": ["list", "patch", "update", "watch"],
        "serviceaccounts": ["create"],
        "persistentvolumes": ["get", "list", "update", "watch"],
        "endpoints": ["create", "get", "list", "watch", "update"],
    }
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": verbs} for resource, verbs in rights.items()]
    lease = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    name = "system:cloud-controller-manager"
    authorization = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "cloud-controller-manager", "namespace": "kube-system"}
    reference = {"apiGroup": authorization, "kind": "ClusterRole", "name": name}
    base = {"apiVersion": f"{authorization}/v1", "metadata": {"name": name}}
    await kube.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            **account | {"metadata": {**account["metadata"], "namespace": "kube-system"}},
        }
    )
    await kube.apply({**base, "kind": "ClusterRole", "rules": [*rules, lease]})
    await kube.apply({**base, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]})
