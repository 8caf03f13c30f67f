"""The lab's Kubernetes objects that a kubelet and the endpoint controllers would make, and a barrier to wait behind."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.controlplane.kube import Kube
from tests.packets import pods
from tests.packets.topology import NODES, node_of, pod_addresses

Json = dict[str, Any]
Marker = tuple[str, int]
NAMESPACE = "default"
FAMILIES = ("IPv4", "IPv6")
SETTLE = 60.0  # seconds until a test gives up waiting for what has to happen; nothing is promised to be that slow
SLICES = "discovery.k8s.io/v1/endpointslices"
_NOBODY = {"IPv4": "10.244.1.40", "IPv6": "fd00:244:1:7::40"}  # the barrier's endpoint; nobody speaks to it
_BARRIER = "barrier"


def node(name: str, addresses: Sequence[str]) -> Json:
    """A Node, with its machine's name in the clouds."""
    return {
        "metadata": {"name": name},
        "spec": {"providerID": f"fakecloud://{name}"},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
    }


def service(name: str, families: Sequence[str], protocols: Sequence[str], annotations: Mapping[str, str]) -> Json:
    """A Service whose endpoints the test writes: it has no selector. Port 80 for each protocol."""
    return {
        "metadata": {"name": name, "annotations": dict(annotations)},
        "spec": {
            "type": "LoadBalancer",
            "ipFamilyPolicy": "RequireDualStack" if len(families) == 2 else "SingleStack",
            "ipFamilies": list(families),
            "ports": [
                {"name": protocol.lower(), "protocol": protocol, "port": 80, "targetPort": pods.PORT}
                for protocol in protocols
            ],
        },
    }


def endpoint_slices(name: str, ports: Sequence[Json], family_pods: Mapping[str, Sequence[str]]) -> list[Json]:
    """The slices of a Service: for each family, those pods."""
    return [
        {
            "metadata": {"name": f"{name}-{family.lower()}", "labels": {"kubernetes.io/service-name": name}},
            "addressType": family,
            "ports": list(ports),
            "endpoints": [
                {
                    "addresses": [pod_addresses(pod)[FAMILIES.index(family)]],
                    "nodeName": node_of(pod),
                    "conditions": {"ready": True},
                }
                for pod in names
            ],
        }
        for family, names in family_pods.items()
    ]


def slice_ports(protocols: Sequence[str], port: int = pods.PORT) -> list[Json]:
    return [{"name": protocol.lower(), "protocol": protocol, "port": port} for protocol in protocols]


class Barrier:
    """
    A Service and its slices whose ports grow by one each time.

    kube-proxy takes in each kind of object in the order of its changes: once it has the barrier's latest ports in its rules, it has
    every change that was made before. Waiting for the change itself would not do where the change leaves no trace, as an
    address with ipMode Proxy doesn't.
    """

    def __init__(self, kube: Kube, families: Sequence[str] = FAMILIES) -> None:
        self._kube = kube
        self._families = families
        self._round = 0
        self._addresses: list[str] = []

    async def make(self) -> None:
        policy = "RequireDualStack" if len(self._families) == 2 else "SingleStack"
        spec = {"ipFamilyPolicy": policy, "ipFamilies": list(self._families), "ports": [self._port()]}
        made = await self._kube.create("services", {"metadata": {"name": _BARRIER}, "spec": spec}, NAMESPACE)
        self._addresses = made["spec"]["clusterIPs"]
        for family in self._families:
            (body,) = endpoint_slices(_BARRIER, slice_ports(["TCP"]), {family: []})
            body["endpoints"] = [{"addresses": [_NOBODY[family]], "nodeName": NODES[0], "conditions": {"ready": True}}]
            await self._kube.create(SLICES, body, NAMESPACE)

    async def remove(self) -> None:
        await self._kube.delete("services", _BARRIER, NAMESPACE)
        for family in self._families:
            await self._kube.delete(SLICES, f"{_BARRIER}-{family.lower()}", NAMESPACE)

    async def raised(self) -> list[Marker]:
        """Change it, and say which addresses and ports are then found in the rules."""
        self._round += 1
        ports = slice_ports(["TCP"], self._endpoint_port())
        for family in self._families:
            await self._kube.patch(SLICES, f"{_BARRIER}-{family.lower()}", {"ports": ports}, NAMESPACE)
        await self._kube.patch("services", _BARRIER, {"spec": {"ports": [self._port()]}}, NAMESPACE)
        endpoints = [(_NOBODY[family], self._endpoint_port()) for family in self._families]
        return [*endpoints, *((address, 20_000 + self._round) for address in self._addresses)]

    def _port(self) -> Json:
        return {"name": "tcp", "protocol": "TCP", "port": 20_000 + self._round, "targetPort": pods.PORT}

    def _endpoint_port(self) -> int:
        return 40_000 + self._round
