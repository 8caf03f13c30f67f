"""
From what was seen of a cluster to its service proxy, with the evidence.

An absent DaemonSet proves nothing by itself: k3s and MicroK8s run kube-proxy inside their agent, RKE2 and classic GKE as static pods. So
"none" and "a replacement alone" are said only when those places were looked at too.
"""

from __future__ import annotations

import dataclasses

from ccm_lb.dataplane import workloads
from ccm_lb.dataplane.cluster import announcers, daemonsets, replacements, staticpods
from ccm_lb.dataplane.cluster.observed import Observed, Withheld
from ccm_lb.dataplane.model import Confidence, Evidence, Kind, ServiceProxy, unknown


def service_proxy(seen: Observed) -> ServiceProxy:
    """
    The cluster's service proxy.

    Two that both claim the Services, or anything that could not be looked at and would have mattered, give UNKNOWN with the reason.
    """
    if isinstance(seen.daemonsets, Withheld):
        return _without_daemonsets(seen, seen.daemonsets)
    shown = daemonsets.from_daemonsets(seen)
    found = staticpods.Hidden() if shown is not None else staticpods.find(seen)
    kube_proxy = shown or found.proxy
    replacement = replacements.find(seen)
    notes = (*daemonsets.elsewhere(seen), *replacements.beside(seen), *announcers.evidence(seen), *found.evidence)
    if kube_proxy is not None and replacement is not None:
        both = f"{kube_proxy.name} and {replacement.name} both claim the Services"
        evidence = (*kube_proxy.evidence, *replacement.evidence, *notes)
        return unknown(f"{both}, and whose rules win is not to be seen here", evidence)
    if kube_proxy is not None:
        return _with(kube_proxy, notes)
    if replacement is not None:
        # That it serves is known; where a kube-proxy beside it could not be seen is said.
        return _with(replacement, (*notes, *(Evidence("kube-proxy", one) for one in found.unseen)))
    return _nobody(seen, notes, found.unseen)


def _nobody(seen: Observed, evidence: tuple[Evidence, ...], unseen: tuple[str, ...]) -> ServiceProxy:
    if unseen:
        return unknown(f"no kube-proxy and no replacement was found, but {'; '.join(unseen)}", evidence)
    if not seen.nodes:
        return unknown("no kube-proxy and no replacement was found, but there are no nodes to run them yet", evidence)
    undecided = replacements.undecided(seen)
    if undecided:
        return unknown(f"no kube-proxy was found, and {undecided}", evidence)
    found = Evidence("cluster", "no kube-proxy and no replacement that is known here, in no form")
    return ServiceProxy(Kind.NONE, Confidence.LIKELY, evidence=(*evidence, found))


def _without_daemonsets(seen: Observed, withheld: Withheld) -> ServiceProxy:
    found = staticpods.find(seen)
    if found.proxy is not None:
        # What a pod or a node says does not need the DaemonSets.
        return _with(found.proxy, (Evidence("DaemonSets", f"not seen: {withheld.reason}"),))
    hints = tuple(
        Evidence(f"ConfigMap {place[0]}/{place[1]}", "exists, which does not say that anything reads it")
        for place, one in seen.config_maps.items()
        if one is not None and not isinstance(one, Withheld)
    )
    return unknown(f"DaemonSets could not be looked at ({withheld.reason})", (*hints, *found.evidence))


def _with(proxy: ServiceProxy, more: tuple[Evidence, ...]) -> ServiceProxy:
    return dataclasses.replace(proxy, evidence=(*proxy.evidence, *more))


def config_maps(seen: Observed) -> list[tuple[str, str]]:
    """The ConfigMaps that are worth asking for, by what the DaemonSets mount and what runs; always kubeadm's kube-proxy."""
    wanted = [("kube-system", "kube-proxy")]
    for daemonset in seen.known_daemonsets:
        wanted += daemonsets.mounted(daemonset)
        wanted += replacements.config_maps(daemonset)
    return list(dict.fromkeys(wanted))


def relevant(daemonset: workloads.Object) -> bool:
    """Whether a change of this DaemonSet can change the answer."""
    return daemonsets.runs_kube_proxy(daemonset) or replacements.concerns(daemonset)
