"""Between the AKS form, upstream's form and kube-proxy's flags. What has no place on the other side is said, never dropped in silence."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from ccm_lb.dataplane.files import durations
from ccm_lb.dataplane.files.aks import AksKubeProxyConfig, AksMode, AksScheduler, IpvsConfig
from ccm_lb.dataplane.files.schema import API_VERSION, KIND

_SECOND = 10**9
_MODES = {AksMode.IPTABLES: "iptables", AksMode.IPVS: "ipvs", AksMode.NFTABLES: "nftables"}
_SCHEDULERS = {AksScheduler.LEAST_CONNECTION: "lc", AksScheduler.ROUND_ROBIN: "rr"}
_TIMEOUTS = {
    "tcpTimeout": "tcp_timeout_seconds",
    "tcpFinTimeout": "tcp_fin_timeout_seconds",
    "udpTimeout": "udp_timeout_seconds",
}
_HEADER = ("apiVersion", "kind")

_DISABLED = "enabled false: AKS deploys no kube-proxy, so there is no configuration for one; something else must implement Services"

_FLAGS: Mapping[str, tuple[str, ...]] = {
    "proxy-mode": ("mode",),
    "ipvs-scheduler": ("ipvs", "scheduler"),
    "ipvs-tcp-timeout": ("ipvs", "tcpTimeout"),
    "ipvs-tcpfin-timeout": ("ipvs", "tcpFinTimeout"),
    "ipvs-udp-timeout": ("ipvs", "udpTimeout"),
    "ipvs-sync-period": ("ipvs", "syncPeriod"),
    "ipvs-min-sync-period": ("ipvs", "minSyncPeriod"),
    "ipvs-strict-arp": ("ipvs", "strictARP"),
    "ipvs-exclude-cidrs": ("ipvs", "excludeCIDRs"),
    "cluster-cidr": ("clusterCIDR",),
    "detect-local-mode": ("detectLocalMode",),
    "feature-gates": ("featureGates",),
    "nodeport-addresses": ("nodePortAddresses",),
}
_LISTS = frozenset({"ipvs-exclude-cidrs", "nodeport-addresses"})
_SWITCHES = frozenset({"ipvs-strict-arp"})


@dataclasses.dataclass(frozen=True)
class Converted:
    """The other form, None where there is nothing to write; and what of the first one is not in it, a sentence each."""

    text: str | None
    lost: tuple[str, ...]


def to_kube_proxy(config: AksKubeProxyConfig) -> Converted:
    """A KubeProxyConfiguration in YAML; none for a kube-proxy that is not deployed."""
    if not config.enabled:
        return Converted(None, (_DISABLED,))  # whatever is written here would start one
    content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "mode": _MODES[config.mode]}
    lost: list[str] = []
    if config.ipvs_config is not None:
        ipvs, missing = _ipvs_section(config.ipvs_config)
        content["ipvs"] = ipvs
        lost += missing
    return Converted(yaml.safe_dump(content, sort_keys=False), tuple(lost))


def _ipvs_section(config: IpvsConfig) -> tuple[dict[str, str], list[str]]:
    section = {"scheduler": _SCHEDULERS[config.scheduler]} if config.scheduler is not None else {}
    given = {name: getattr(config, field) for name, field in _TIMEOUTS.items()}
    section |= {name: durations.from_seconds(seconds) for name, seconds in given.items() if seconds is not None}
    absent = [name for name, seconds in given.items() if seconds is None]
    if not absent:
        return section, []
    return section, [f"{', '.join(absent)}: not given; upstream leaves what the node has, AKS sets its own"]


def to_aks(content: Mapping[str, Any]) -> Converted:
    """The AKS form of a KubeProxyConfiguration that `kubeproxy.check` has nothing against."""
    given = {name: value for name, value in content.items() if value not in (None, "", {}, []) and name not in _HEADER}
    lost: list[str] = []
    mode = _aks_mode(given.pop("mode", ""), lost)
    section = given.pop("ipvs", None)
    ipvs = _ipvs_config(section or {}, lost) if mode is AksMode.IPVS else None
    if mode is not AksMode.IPVS and section is not None:
        lost.append("ipvs: means nothing without mode ipvs")
    lost += [f"{name}: AKS has no key for it" for name in given]
    fields: dict[str, Any] = {"enabled": True, "mode": mode}
    if ipvs is not None:
        fields["ipvs_config"] = ipvs
    return Converted(AksKubeProxyConfig(**fields).to_json(), tuple(lost))


def _aks_mode(mode: str, lost: list[str]) -> AksMode:
    if not mode:
        lost.append("no mode: written as IPTABLES, upstream's default up to 1.39; 1.37 says that 1.40 takes nftables")
    return next((aks for aks, upstream in _MODES.items() if upstream == mode), AksMode.IPTABLES)


def _ipvs_config(section: Mapping[str, Any], lost: list[str]) -> IpvsConfig | None:
    fields: dict[str, Any] = {}
    for name, value in section.items():
        if name == "scheduler":
            scheduler = next((aks for aks, upstream in _SCHEDULERS.items() if upstream == value), None)
            if scheduler is not None:
                fields["scheduler"] = scheduler
            elif value:
                lost.append(f"ipvs.scheduler {value}: AKS has LeastConnection (lc) and RoundRobin (rr) alone")
        elif name in _TIMEOUTS:
            seconds, rest = divmod(durations.parse(value or "0") or 0, _SECOND)
            if rest:
                lost.append(f"ipvs.{name} {value}: AKS takes whole seconds; written as {seconds + 1}")
                seconds += 1
            if seconds:
                fields[_TIMEOUTS[name]] = seconds
            elif value is not None:
                lost.append(f"ipvs.{name} 0: leaving what the node has cannot be said to AKS; it sets its own")
        elif value not in (None, "", [], False):
            lost.append(f"ipvs.{name}: AKS has no key for it")
    return IpvsConfig(**fields) if fields else None


def flags(command: Sequence[str]) -> dict[str, str]:
    """The flags of a command line, without their dashes: `--flag=value`, `--flag value` or a bare switch."""
    found: dict[str, str] = {}
    words = list(command)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        found[name.replace("_", "-")] = value if equals or value else "true"
    return found


def from_flags(command: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The KubeProxyConfiguration that a command line without `--config` amounts to, and the flags that are not in it."""
    content: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    lost: list[str] = []
    for name, value in flags(command).items():
        path = _FLAGS.get(name)
        if path is None:
            lost.append(f"--{name}: not translated")
            continue
        section = content
        for step in path[:-1]:
            section = section.setdefault(step, {})
        section[path[-1]] = _value(name, value)
    return content, tuple(lost)


def _value(name: str, text: str) -> Any:
    if name == "feature-gates":
        pairs = (one.partition("=") for one in text.split(",") if one.strip())
        return {gate.strip(): value.strip().lower() == "true" for gate, _, value in pairs}
    return text.split(",") if name in _LISTS else text == "true" if name in _SWITCHES else text


def as_yaml(content: Mapping[str, Any]) -> Converted:
    """A configuration that is upstream's already."""
    return Converted(yaml.safe_dump(dict(content), sort_keys=False), ())
