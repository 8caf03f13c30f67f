"""
Google Distributed Cloud (GKE) on bare metal without kube-proxy: the machines that it needs, and the proof afterwards.

Facts from "Create a cluster without kube-proxy" of Google's documentation; the feature is a preview.
"""

from __future__ import annotations

import dataclasses
import enum

from ccm_lb.dataplane import versions, workloads
from ccm_lb.dataplane.cluster import announcers, daemonsets, infer, replacements, staticpods
from ccm_lb.dataplane.cluster.observed import Object, Observed, Withheld
from ccm_lb.dataplane.model import Evidence, Kind
from ccm_lb.dataplane.versions import Version
from ccm_lb.dataplane.workloads import KUBE_PROXY

OLDEST_KERNEL = Version(5, 7, 0)  # Ubuntu's; Red Hat Enterprise Linux is not asked for its kernel


# ---- before: the machines


class Fitness(enum.StrEnum):
    FITS = "fits"
    UNFIT = "does not fit"
    CANNOT_TELL = "cannot tell"


@dataclasses.dataclass(frozen=True)
class Machine:
    """One node, and whether it can do without kube-proxy."""

    node: str
    os: str
    kernel: str
    fitness: Fitness
    reason: str


def preflight(nodes: list[Object]) -> list[Machine]:
    return [_machine(node) for node in nodes]


def _machine(node: Object) -> Machine:
    info = (node.get("status") or {}).get("nodeInfo") or {}
    system, kernel = str(info.get("osImage") or ""), str(info.get("kernelVersion") or "")
    fitness, reason = _fitness(system, kernel)
    return Machine(workloads.name(node), system, kernel, fitness, reason)


def _fitness(system: str, kernel: str) -> tuple[Fitness, str]:
    if not system:
        return Fitness.CANNOT_TELL, "the node does not say what system it runs"
    if system.startswith("Red Hat Enterprise Linux") and "CoreOS" not in system:
        return Fitness.FITS, "Red Hat Enterprise Linux"
    if not system.startswith("Ubuntu"):
        return Fitness.UNFIT, "neither Red Hat Enterprise Linux nor Ubuntu"
    version = versions.parse(kernel)
    if version is None:
        return Fitness.CANNOT_TELL, "Ubuntu, and its kernel's version cannot be read"
    if version < OLDEST_KERNEL:
        return Fitness.UNFIT, "Ubuntu with a kernel older than 5.7.0"
    return Fitness.FITS, "Ubuntu with kernel 5.7.0 or newer"


# ---- after: is it really gone


class Presence(enum.StrEnum):
    ABSENT = "absent"
    PRESENT = "present"
    CANNOT_TELL = "cannot tell"


@dataclasses.dataclass(frozen=True)
class Verification:
    """Whether kube-proxy is gone, and what is in its place (UNKNOWN or NONE where nothing is, as far as can be seen)."""

    kube_proxy: Presence
    replacement: Kind
    reason: str
    evidence: tuple[Evidence, ...]


def verify(seen: Observed) -> Verification:
    """By all DaemonSets, and by the places where kube-proxy hides."""
    if isinstance(seen.daemonsets, Withheld):
        return Verification(
            Presence.CANNOT_TELL, Kind.UNKNOWN, f"DaemonSets could not be looked at ({seen.daemonsets.reason})", ()
        )
    replacement = replacements.find(seen)
    kind = replacement.kind if replacement is not None else _instead(seen)
    notes = (
        *daemonsets.elsewhere(seen),
        *replacements.beside(seen),
        *announcers.evidence(seen),
        *(replacement.evidence if replacement else ()),
    )
    shown = [one for one in seen.daemonsets if workloads.name(one) == KUBE_PROXY or daemonsets.runs_kube_proxy(one)]
    running = [one for one in shown if workloads.scheduled(one) != 0]
    if running:
        where = workloads.title("DaemonSet", running[0])
        return Verification(Presence.PRESENT, kind, f"{where} runs it", notes)
    found = staticpods.find(seen)
    evidence = (*notes, *found.evidence)
    if found.proxy is not None:
        evidence = (*evidence, *found.proxy.evidence)
        return Verification(Presence.PRESENT, kind, str(found.proxy.evidence[0]), evidence)
    if found.unseen:
        return Verification(Presence.CANNOT_TELL, kind, f"no DaemonSet, but {'; '.join(found.unseen)}", evidence)
    return Verification(
        Presence.ABSENT, kind, "no DaemonSet in any namespace, no static pod, no agent that holds it", evidence
    )


def _instead(seen: Observed) -> Kind:
    """NONE or UNKNOWN, as the whole picture says."""
    kind = infer.service_proxy(seen).kind
    return kind if kind is Kind.NONE else Kind.UNKNOWN
