"""The lab's Kubernetes objects that a kubelet and the endpoint controllers would make, and a barrier to wait behind."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.controlplane.kube import Kube
from tests.packets import pods
from tests.packets.topology import NODES, lan_addresses, node_of, pod_addresses

Json = dict[str, Any]
NAMESPACE = "default"
FAMILIES = ("IPv4", "IPv6")
SLICES = "discovery.k8s.io/v1/endpointslices"
_NOBODY = ("10.244.1.40", "fd00:244:1:7::40")  # the barrier's endpoint; nobody speaks to it
_BARRIER = "barrier"


def node(name: str) -> Json:
    """A Node of both families, and its machine as the clouds know it."""
    return {
        "metadata": {"name": name},
        "spec": {"providerID": f"fakecloud://{name}"},
        "status": {"addresses": [{"type": "InternalIP", "address": address} for address in lan_addresses(name)]},
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

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._round = 0
        self._addresses: list[str] = []

    async def make(self) -> None:
        made = await self._kube.create(
            "services",
            {
                "metadata": {"name": _BARRIER},
                "spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": list(FAMILIES), "ports": [self._port()]},
            },
            NAMESPACE,
        )
        self._addresses = made["spec"]["clusterIPs"]
        for family, address in zip(FAMILIES, _NOBODY, strict=True):
            (body,) = endpoint_slices(_BARRIER, slice_ports(["TCP"]), {family: []})
            body["endpoints"] = [{"addresses": [address], "nodeName": NODES[0], "conditions": {"ready": True}}]
            await self._kube.create(SLICES, body, NAMESPACE)

    async def remove(self) -> None:
        await self._kube.delete("services", _BARRIER, NAMESPACE)
        for family in FAMILIES:
            await self._kube.delete(SLICES, f"{_BARRIER}-{family.lower()}", NAMESPACE)

    async def raised(self) -> list[str]:
        """Change it, and say what is then found in the rules, as regular expressions."""
        self._round += 1
        ports = slice_ports(["TCP"], self._endpoint_port())
        for family in FAMILIES:
            await self._kube.patch(SLICES, f"{_BARRIER}-{family.lower()}", {"ports": ports}, NAMESPACE)
        await self._kube.patch("services", _BARRIER, {"spec": {"ports": [self._port()]}}, NAMESPACE)
        v4, v6 = _NOBODY
        endpoints = [f"{re.escape(v4)}:{self._endpoint_port()}", rf"\[{v6}\]:{self._endpoint_port()}"]
        services = [rf"{re.escape(address)}\b.*\b{self._port()['port']}\b" for address in self._addresses]
        return [*endpoints, *services]

    def _port(self) -> Json:
        return {"name": "tcp", "protocol": "TCP", "port": 20_000 + self._round, "targetPort": pods.PORT}

    def _endpoint_port(self) -> int:
        return 40_000 + self._round
