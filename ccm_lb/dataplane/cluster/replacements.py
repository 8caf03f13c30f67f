"""What routes Services in kube-proxy's place: known by its own DaemonSet and its own configuration, never by a label alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ccm_lb.dataplane import workloads
from ccm_lb.dataplane.cluster.observed import Object, Observed, Withheld
from ccm_lb.dataplane.files import convert, documents
from ccm_lb.dataplane.model import Confidence, Evidence, Kind, ServiceProxy
from ccm_lb.dataplane.versions import Version
from ccm_lb.errors import ConfigError

_TRUE = frozenset({"true", "strict"})  # Cilium wrote "strict" up to 1.13

_CONFIG_MAPS = {"cilium": "cilium-config", "antrea-agent": "antrea-config"}
_CALICO = "calico-node"


def concerns(daemonset: Object) -> bool:
    return workloads.name(daemonset) in _FOUND_BY_NAME


def config_maps(daemonset: Object) -> list[tuple[str, str]]:
    name = _CONFIG_MAPS.get(workloads.name(daemonset))
    return [(workloads.namespace(daemonset), name)] if name is not None else []


def find(seen: Observed) -> ServiceProxy | None:
    """The replacement that serves all Services; None where there is none or it leaves them to kube-proxy."""
    return next((proxy for one in _agents(seen) if (proxy := _FOUND_BY_NAME[workloads.name(one)](seen, one))), None)


def undecided(seen: Observed) -> str:
    """Why it is not known whether one of them serves, empty where that is known."""
    for daemonset in _agents(seen):
        name, where = workloads.name(daemonset), workloads.title("DaemonSet", daemonset)
        if name in _CONFIG_MAPS:
            config_map = seen.config_map(workloads.namespace(daemonset), _CONFIG_MAPS[name])
            if isinstance(config_map, Withheld):
                return f"{where} may serve: its ConfigMap {_CONFIG_MAPS[name]} was not seen ({config_map.reason})"
            if config_map is None:
                return f"{where} may serve: there is no ConfigMap {_CONFIG_MAPS[name]} that says so"
        if name == _CALICO and isinstance(seen.felix, Withheld):
            return f"{where} may serve by eBPF: its FelixConfiguration was not seen ({seen.felix.reason})"
    return ""


def beside(seen: Observed) -> tuple[Evidence, ...]:
    """Agents that are there and leave the Services to kube-proxy."""
    return tuple(
        Evidence(workloads.title("DaemonSet", one), "runs, and leaves Services to kube-proxy as far as can be seen")
        for one in _agents(seen)
        if _FOUND_BY_NAME[workloads.name(one)](seen, one) is None
    )


def _agents(seen: Observed) -> list[Object]:
    return [one for one in seen.known_daemonsets if concerns(one) and workloads.scheduled(one) != 0]


def _cilium(seen: Observed, daemonset: Object) -> ServiceProxy | None:
    found = data(seen, daemonset, "cilium-config")
    value = str(found.get("kube-proxy-replacement", "")).lower()
    if value not in _TRUE:
        return None
    where = f"ConfigMap {workloads.namespace(daemonset)}/cilium-config"
    return ServiceProxy(
        Kind.CILIUM,
        Confidence.LIKELY,
        version=_version(daemonset, "cilium"),
        settings={"kube-proxy-replacement": value},
        evidence=(_runs(daemonset), Evidence(where, f"kube-proxy-replacement: {value}")),
        rolling=workloads.rolling(daemonset),
    )


def _anetd(_: Observed, daemonset: Object) -> ServiceProxy:
    # Its images carry Google's own versions, which are not Cilium's.
    return ServiceProxy(
        Kind.GKE_DATAPLANE_V2,
        Confidence.LIKELY,
        evidence=(Evidence(workloads.title("DaemonSet", daemonset), "GKE Dataplane V2's agent"),),
        rolling=workloads.rolling(daemonset),
    )


def _calico(seen: Observed, daemonset: Object) -> ServiceProxy | None:
    where = workloads.title("DaemonSet", daemonset)
    programs = [one for one in workloads.programs(daemonset) if one.image_name in ("node", "calico-node")]
    by_env = any(one.env.get("FELIX_BPFENABLED", "").lower() == "true" for one in programs)
    felix = seen.felix if isinstance(seen.felix, Mapping) else {}
    by_object = (felix.get("spec") or {}).get("bpfEnabled") is True
    if not by_env and not by_object:
        return None
    said = (
        Evidence(where, "FELIX_BPFENABLED=true")
        if by_env
        else Evidence("FelixConfiguration default", "bpfEnabled: true")
    )
    return ServiceProxy(
        Kind.CALICO_EBPF,
        Confidence.LIKELY,
        version=next((one.version for one in programs), None),
        settings={"bpfEnabled": "true"},
        evidence=(_runs(daemonset), said),
        rolling=workloads.rolling(daemonset),
    )


def _antrea(seen: Observed, daemonset: Object) -> ServiceProxy | None:
    proxy, gates = _mapping(_antrea_config(seen, daemonset).get("antreaProxy")), antrea_gates(seen, daemonset)
    if gates.get("AntreaProxy") is False or proxy.get("enable") is False or proxy.get("proxyAll") is not True:
        return None  # without proxyAll it serves pods alone, and kube-proxy the rest
    addresses = proxy.get("proxyLoadBalancerIPs") is not False
    where = f"ConfigMap {workloads.namespace(daemonset)}/antrea-config"
    return ServiceProxy(
        Kind.ANTREA_PROXY,
        Confidence.LIKELY,
        version=next((one.version for one in workloads.programs(daemonset) if one.version is not None), None),
        settings={"proxyAll": "true", "proxyLoadBalancerIPs": str(addresses).lower()},
        evidence=(_runs(daemonset), Evidence(where, f"proxyAll true, proxyLoadBalancerIPs {str(addresses).lower()}")),
        rolling=workloads.rolling(daemonset),
    )


def antrea_gates(seen: Observed, daemonset: Object) -> Mapping[str, Any]:
    """The feature gates of Antrea's agent; empty where its configuration is not to be had."""
    return _mapping(_antrea_config(seen, daemonset).get("featureGates"))


def _antrea_config(seen: Observed, daemonset: Object) -> Mapping[str, Any]:
    text = data(seen, daemonset, "antrea-config").get("antrea-agent.conf", "")
    try:
        return _mapping(documents.read(text, "antrea-agent.conf")[0].content)
    except ConfigError:
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _kube_router(_: Observed, daemonset: Object) -> ServiceProxy | None:
    for program in workloads.programs(daemonset):
        # Its own default is true.
        if program.image_name == "kube-router" and convert.flags(program.command).get("run-service-proxy") != "false":
            fact = "runs with its service proxy on"
            where = workloads.title("DaemonSet", daemonset)
            return ServiceProxy(
                Kind.KUBE_ROUTER,
                Confidence.CERTAIN,
                version=program.version,
                evidence=(_runs(daemonset), Evidence(where, fact)),
                rolling=workloads.rolling(daemonset),
            )
    return None


def _ovn(_: Observed, daemonset: Object) -> ServiceProxy:
    return ServiceProxy(
        Kind.OVN_KUBERNETES,
        Confidence.LIKELY,
        evidence=(_runs(daemonset),),
        rolling=workloads.rolling(daemonset),
    )


_FOUND_BY_NAME: Mapping[str, Callable[[Observed, Object], ServiceProxy | None]] = {
    "cilium": _cilium,
    "anetd": _anetd,
    _CALICO: _calico,
    "antrea-agent": _antrea,
    "kube-router": _kube_router,
    "ovnkube-node": _ovn,
}


def _runs(daemonset: Object) -> Evidence:
    images = ", ".join(program.image for program in workloads.programs(daemonset) if program.image)
    return Evidence(workloads.title("DaemonSet", daemonset), f"runs {images or 'an image that is not named'}")


def _version(daemonset: Object, image: str) -> Version | None:
    return next((one.version for one in workloads.programs(daemonset) if one.image_name == image), None)


def data(seen: Observed, daemonset: Object, name: str) -> Mapping[str, Any]:
    """Of a ConfigMap beside an agent; empty where it is not to be had."""
    config_map = seen.config_map(workloads.namespace(daemonset), name)
    return (config_map.get("data") or {}) if isinstance(config_map, Mapping) else {}
