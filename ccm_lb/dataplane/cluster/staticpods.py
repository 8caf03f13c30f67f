"""kube-proxy where no DaemonSet shows it: as a static pod, or inside an agent that is not a pod at all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from ccm_lb.dataplane import versions, workloads
from ccm_lb.dataplane.cluster import daemonsets
from ccm_lb.dataplane.cluster.observed import Object, Observed, Withheld
from ccm_lb.dataplane.files import convert
from ccm_lb.dataplane.model import DETECT_LOCAL, Confidence, Evidence, Kind, ServiceProxy

_NODE_ARGS = "k3s.io/node-args"


@dataclasses.dataclass(frozen=True)
class Hidden:
    """A kube-proxy that was found; or else, one by one, where it could still be."""

    proxy: ServiceProxy | None = None
    evidence: tuple[Evidence, ...] = ()
    unseen: tuple[str, ...] = ()


def find(seen: Observed) -> Hidden:
    """Look into pods and nodes."""
    pod = _static_pod(seen)
    if pod is not None:
        return Hidden(daemonsets.described(seen, "Pod", pod))
    agent = _agent(seen)
    if agent.proxy is not None:
        return agent
    unseen = list(agent.unseen)
    if isinstance(seen.pods, Withheld):
        unseen.append(
            f"the pods of kube-system, where it may be a static pod, could not be looked at ({seen.pods.reason})"
        )
    if not seen.everywhere:
        unseen.append("DaemonSets of other namespaces than kube-system were not looked at")
    return Hidden(None, agent.evidence, tuple(unseen))


def _static_pod(seen: Observed) -> Object | None:
    if isinstance(seen.pods, Withheld):
        return None
    return next((one for one in seen.pods if _mirrors(one) and daemonsets.runs_kube_proxy(one)), None)


def _mirrors(pod: Object) -> bool:
    """A static pod's image in the API; pods of a DaemonSet are known by their DaemonSet."""
    return "kubernetes.io/config.mirror" in (pod.get("metadata", {}).get("annotations") or {})


def _agent(seen: Observed) -> Hidden:
    if isinstance(seen.nodes, Withheld):
        return Hidden(unseen=(f"the nodes, which tell k3s and its like, could not be looked at ({seen.nodes.reason})",))
    k3s = [one for one in seen.nodes if "+k3s" in _kubelet(one)]
    if k3s:
        return _k3s(k3s)
    for node in seen.nodes:
        where = f"Node {workloads.name(node)}"
        if "+rke2" in _kubelet(node):
            found = Evidence(
                where, f"kubelet {_kubelet(node)}: RKE2 runs kube-proxy as a static pod unless it is told not to"
            )
            return Hidden(evidence=(found,))
        if "microk8s.io/cluster" in (node.get("metadata", {}).get("labels") or {}):
            found = Evidence(where, "MicroK8s runs kube-proxy inside its kubelite, which no object of the API shows")
            return Hidden(evidence=(found,), unseen=("MicroK8s may run it inside kubelite",))
    return Hidden()


def _k3s(nodes: Sequence[Object]) -> Hidden:
    arguments = {workloads.name(one): _arguments(one) for one in nodes}
    for name, given in arguments.items():
        if given and convert.flags(given).get("disable-kube-proxy") == "true":
            return Hidden(evidence=(Evidence(f"Node {name}", "k3s runs with --disable-kube-proxy"),))
    node = nodes[0]
    where, version = f"Node {workloads.name(node)}", _kubelet(node)
    if not any(arguments.values()):
        fact = f"kubelet {version}, and no annotation {_NODE_ARGS} that tells how k3s was started"
        return Hidden(
            evidence=(Evidence(where, fact),), unseen=("k3s runs it inside its agent unless it is told not to",)
        )
    passed = [one for given in arguments.values() for one in _passed(given)]
    content, _ = convert.from_flags([f"--{one}" for one in passed])
    configured = daemonsets.of_content(content, f"{where} {_NODE_ARGS}", versions.parse(version), certain=False)
    inside = Evidence(where, f"kubelet {version}: k3s runs kube-proxy inside its agent, and was not told otherwise")
    return Hidden(
        ServiceProxy(
            Kind.KUBE_PROXY,
            Confidence.LIKELY,
            configured.mode,
            versions.parse(version),
            # It tells kube-proxy by itself which addresses are pods'.
            {name: value for name, value in configured.settings.items() if name != DETECT_LOCAL},
            (inside, *configured.evidence),
        )
    )


def _kubelet(node: Object) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or "")


def _arguments(node: Object) -> list[str]:
    text = (node.get("metadata", {}).get("annotations") or {}).get(_NODE_ARGS)
    try:
        given = json.loads(text or "[]")
    except ValueError:
        return []
    return [str(one) for one in given] if isinstance(given, list) else []


def _passed(arguments: Sequence[str]) -> list[str]:
    """What `--kube-proxy-arg NAME=VALUE` and `--kube-proxy-arg=NAME=VALUE` hand on; the flag may be repeated."""
    words, passed = list(arguments), []
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == "--kube-proxy-arg":
            passed.append(after)
        elif word.startswith("--kube-proxy-arg="):
            passed.append(word.partition("=")[2])
    return passed
