"""kube-proxy where it is a DaemonSet: its mode from the file that it reads, else from its flags, else the default."""

from __future__ import annotations

import dataclasses
from typing import Any

from ccm_lb.dataplane import workloads
from ccm_lb.dataplane.cluster.observed import KUBE_SYSTEM, Object, Observed, Withheld
from ccm_lb.dataplane.files import convert, documents
from ccm_lb.dataplane.model import (
    DETECT_LOCAL,
    IP_MODE_GATE,
    NO_DETECTOR,
    Confidence,
    Evidence,
    Kind,
    Mode,
    ServiceProxy,
)
from ccm_lb.dataplane.versions import Version
from ccm_lb.dataplane.workloads import KUBE_PROXY, Program
from ccm_lb.errors import ConfigError

_SETTINGS = ("scheduler", "tcpTimeout", "tcpFinTimeout", "udpTimeout", "strictARP")


@dataclasses.dataclass(frozen=True)
class Configured:
    """A mode, as far as it is known, and the settings that matter beside it."""

    mode: Mode
    settings: dict[str, str]
    evidence: tuple[Evidence, ...]
    certain: bool


def runs_kube_proxy(obj: Object) -> bool:
    """Whether a workload or pod is kube-proxy for Linux; kube-control-plane-metrics-proxy and audit-proxy are not."""
    if workloads.for_windows(obj):
        return False
    return workloads.name(obj) == KUBE_PROXY or workloads.kube_proxy(obj) is not None


def mounted(daemonset: Object) -> list[tuple[str, str]]:
    """The ConfigMap that its `--config` comes from."""
    found = workloads.kube_proxy(daemonset) if runs_kube_proxy(daemonset) else None
    path = convert.flags(found.command).get("config") if found is not None else None
    source = workloads.mounted_file(daemonset, found, path) if found is not None and path else None
    return [(workloads.namespace(daemonset), source[0])] if source is not None else []


def from_daemonsets(seen: Observed) -> ServiceProxy | None:
    """None where no DaemonSet runs kube-proxy on any node."""
    running = [one for one in seen.known_daemonsets if runs_kube_proxy(one) and workloads.scheduled(one) != 0]
    # kube-system's own first; one in another namespace counts as well, since it programs the same nodes.
    running.sort(key=lambda one: (workloads.namespace(one) != KUBE_SYSTEM, workloads.name(one) != KUBE_PROXY))
    if not running:
        return None
    daemonset = running[0]
    proxy = described(seen, "DaemonSet", daemonset)
    others = tuple(Evidence(workloads.title("DaemonSet", one), "runs kube-proxy too") for one in running[1:])
    return dataclasses.replace(
        proxy, evidence=(*proxy.evidence, *others), rolling=any(workloads.rolling(one) for one in running)
    )


def elsewhere(seen: Observed) -> tuple[Evidence, ...]:
    """DaemonSets of kube-proxy that run on no node of Linux: named, because a reader of the list would count them."""
    idle = [one for one in seen.known_daemonsets if runs_kube_proxy(one) and workloads.scheduled(one) == 0]
    windows = [
        one for one in seen.known_daemonsets if workloads.for_windows(one) and workloads.kube_proxy(one) is not None
    ]
    return (
        *(Evidence(workloads.title("DaemonSet", one), "is for no node, so nothing of it runs") for one in idle),
        *(Evidence(workloads.title("DaemonSet", one), "for Windows, which is not looked at here") for one in windows),
    )


def described(seen: Observed, kind: str, obj: Object) -> ServiceProxy:
    """kube-proxy as this DaemonSet or pod runs it."""
    found = workloads.kube_proxy(obj)
    where = workloads.title(kind, obj)
    if found is None:
        named = Evidence(where, "has kube-proxy's name, and no container that looks like it")
        return ServiceProxy(Kind.KUBE_PROXY, Confidence.LIKELY, Mode.UNKNOWN, evidence=(named,))
    configured = _configured(seen, obj, found, where)
    runs = Evidence(where, f"runs {found.image or KUBE_PROXY}")
    confidence = Confidence.CERTAIN if configured.certain else Confidence.LIKELY
    return ServiceProxy(
        Kind.KUBE_PROXY,
        confidence,
        configured.mode,
        found.version,
        configured.settings,
        (runs, *configured.evidence),
    )


def _configured(seen: Observed, obj: Object, found: Program, where: str) -> Configured:
    given = convert.flags(found.command)
    path = given.get("config")
    if path:
        # As kube-proxy: with a file, --proxy-mode and --ipvs-* on the command line mean nothing.
        ignored = "proxy-mode" in given
        note = (Evidence(where, f"--proxy-mode={given['proxy-mode']} is ignored beside --config"),) if ignored else ()
        configured = _of_file(seen, obj, found, path)
        return dataclasses.replace(configured, evidence=(*configured.evidence, *note))
    content, _ = convert.from_flags(found.command)
    return of_content(content, where, found.version, certain=True)


def _of_file(seen: Observed, obj: Object, found: Program, path: str) -> Configured:
    source = workloads.mounted_file(obj, found, path)
    if source is None:
        return _unread(
            workloads.title("pods of", obj), f"--config={path} is a file of the node, which is not seen here"
        )
    name, key = source
    where = f"ConfigMap {workloads.namespace(obj)}/{name}"
    config_map = seen.config_map(workloads.namespace(obj), name)
    if isinstance(config_map, Withheld):
        return _unread(where, f"not seen: {config_map.reason}")
    if config_map is None:
        return _unread(where, "does not exist, and kube-proxy cannot start without it")
    content, problem = _content((config_map.get("data") or {}).get(key), f"key {key}")
    if content is None:
        return _unread(where, problem)
    return of_content(content, f"{where} key {key}", found.version, certain=False)


def _content(text: str | None, key: str) -> tuple[Object | None, str]:
    """The configuration in a ConfigMap's value, or why there is none."""
    if text is None:
        return None, f"has no {key}"
    try:
        content = documents.read(text, key)[0].content
    except ConfigError as error:
        return None, f"cannot be read: {error}"
    return (content, "") if isinstance(content, dict) else (None, f"{key} holds no configuration")


def _unread(where: str, fact: str) -> Configured:
    return Configured(Mode.UNKNOWN, {}, (Evidence(where, fact),), certain=False)


def of_content(content: Object, where: str, version: Version | None, *, certain: bool) -> Configured:
    """The mode that a KubeProxyConfiguration means; another spelling is understood, another word never guessed at."""
    text = content.get("mode")
    mode, fact = _mode(text, version)
    section: Any = content.get("ipvs")
    settings = {}
    if mode is Mode.IPVS and isinstance(section, dict):
        settings = {f"ipvs.{name}": str(section[name]) for name in _SETTINGS if section.get(name) not in (None, "")}
    gate = _ip_mode_gate(content, version)
    if gate is not None:
        settings[IP_MODE_GATE] = str(gate).lower()
    if content.get("detectLocalMode") in (None, "", "ClusterCIDR") and not content.get("clusterCIDR"):
        settings[DETECT_LOCAL] = NO_DETECTOR
    return Configured(mode, settings, (Evidence(where, fact),), certain)


def _ip_mode_gate(content: Object, version: Version | None) -> bool | None:
    """What it makes of LoadBalancerIPMode: by name, or with all of its stage; alpha in 1.29, beta up to 1.31, then without a gate."""
    gates = content.get("featureGates")
    if not isinstance(gates, dict) or version is None or version >= Version(1, 32):
        return None
    stage = gates.get("AllAlpha" if version < Version(1, 30) else "AllBeta")
    found = gates.get("LoadBalancerIPMode", stage)
    return found if isinstance(found, bool) else None


def _mode(text: Any, version: Version | None) -> tuple[Mode, str]:
    if text is None or (isinstance(text, str) and not text.strip()):
        if version is not None and (version.major, version.minor) >= (1, 40):
            return Mode.UNKNOWN, "no mode: the default, which was announced to change with this version"
        return Mode.IPTABLES, "no mode: the default, which is iptables"
    words = str(text).strip().lower()
    for mode in (Mode.IPTABLES, Mode.IPVS, Mode.NFTABLES):
        if words == mode:
            spelled = "" if text == mode else f" (written {text!r}, which today's kube-proxy refuses)"
            return mode, f"mode {mode}{spelled}"
    return Mode.UNKNOWN, f"mode {text!r}, which is none that is known"
