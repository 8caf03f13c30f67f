"""What is known of a cluster's service proxy, and how well."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from ccm_lb.dataplane.versions import Version


class Kind(enum.StrEnum):
    """Who implements Services on the nodes."""

    KUBE_PROXY = "kube-proxy"
    CILIUM = "cilium"
    GKE_DATAPLANE_V2 = "gke-dataplane-v2"
    CALICO_EBPF = "calico-ebpf"
    ANTREA_PROXY = "antrea-proxy"
    KUBE_ROUTER = "kube-router"
    OVN_KUBERNETES = "ovn-kubernetes"
    NONE = "none"
    UNKNOWN = "unknown"


class Mode(enum.StrEnum):
    """How kube-proxy does it; of the other kinds there is nothing to tell."""

    IPTABLES = "iptables"
    IPVS = "ipvs"
    NFTABLES = "nftables"
    UNKNOWN = "unknown"


class Delivery(enum.StrEnum):
    """What a load balancer sends to: a node's port, a pod, or the very address that the client asked for."""

    NODE_PORT = "node-port"
    POD = "pod"
    ADDRESS = "address"


DETECT_LOCAL = "detectLocal"
"""A setting of kube-proxy: by what it tells a pod's address; NO_DETECTOR where it was told nothing."""

NO_DETECTOR = "none"

IP_MODE_GATE = "featureGates.LoadBalancerIPMode"
"""A setting of kube-proxy's where its configuration turns the gate on or off: "true" or "false"."""


class Confidence(enum.StrEnum):
    """How far the evidence goes. Warnings are given on CERTAIN and LIKELY alone."""

    CERTAIN = "certain"  # said by what runs: a workload's own command line, a running agent's configuration
    LIKELY = "likely"  # said by what it reads at its start, or by what such a cluster always has
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One thing that was seen (or was not to be had) and where."""

    source: str  # "DaemonSet kube-system/kube-proxy"
    fact: str

    def __str__(self) -> str:
        return f"{self.source}: {self.fact}"


@dataclasses.dataclass(frozen=True)
class ServiceProxy:
    """
    The cluster's service proxy. For UNKNOWN, `reason` says why nothing more can be said.

    `settings` are those that matter for Services, by their own names (`ipvs.scheduler`, `kube-proxy-replacement`, `proxyAll`).
    `rolling`: not all nodes run the configuration that is described.
    """

    kind: Kind
    confidence: Confidence
    mode: Mode | None = None
    version: Version | None = None
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    reason: str = ""
    rolling: bool = False

    @property
    def name(self) -> str:
        """For people: `kube-proxy 1.34.4 (ipvs)`, `cilium 1.18.0`, `unknown`."""
        words = [self.kind.value, str(self.version) if self.version else ""]
        mode = f"({self.mode})" if self.mode is not None else ""
        return " ".join(filter(None, [*words, mode]))

    def sentence(self) -> str:
        """One line that can stand in an event, a log or on a terminal."""
        return f"unknown, because {self.reason}" if self.kind is Kind.UNKNOWN else self.name

    def as_json(self) -> dict[str, Any]:
        """For `--output json`; the keys are part of the command line's promise."""
        return {
            "kind": self.kind.value,
            "mode": self.mode.value if self.mode is not None else None,
            "version": str(self.version) if self.version else None,
            "confidence": self.confidence.value,
            "reason": self.reason,
            "rolling": self.rolling,
            "settings": dict(self.settings),
            "evidence": [{"source": one.source, "fact": one.fact} for one in self.evidence],
        }


def unknown(reason: str, evidence: tuple[Evidence, ...] = ()) -> ServiceProxy:
    return ServiceProxy(Kind.UNKNOWN, Confidence.UNKNOWN, reason=reason, evidence=evidence)
