"""
Upstream's KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1): what kube-proxy 1.37 refuses, known before it is asked.

Not checked: the names of feature gates, `showHiddenMetricsForVersion`, and what `logging` holds but `format`, because what is right there
depends on the version and build of the binary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ccm_lb.dataplane import addresses
from ccm_lb.dataplane.files import durations, findings
from ccm_lb.dataplane.files.documents import Document, Path
from ccm_lb.dataplane.files.findings import Finding, Severity
from ccm_lb.dataplane.files.schema import API_VERSION, IPVS_SCHEDULERS, KIND, KUBE_PROXY_CONFIGURATION, Schema, Type

MODES = ("iptables", "ipvs", "nftables")
LOCAL_MODES = ("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")
KEYWORDS = ("primary", "localhost", "all")

_AT_LEAST_ZERO: tuple[Path, ...] = (
    ("conntrack", "maxPerCore"),
    ("conntrack", "min"),
    ("clientConnection", "burst"),
)
_NOT_NEGATIVE: tuple[Path, ...] = (
    ("conntrack", "tcpEstablishedTimeout"),
    ("conntrack", "tcpCloseWaitTimeout"),
    ("conntrack", "udpTimeout"),
    ("conntrack", "udpStreamTimeout"),
    ("configSyncPeriod",),
)
_RANGES: Mapping[Path, tuple[int, int]] = {
    ("iptables", "masqueradeBit"): (0, 31),
    ("nftables", "masqueradeBit"): (0, 31),
    ("oomScoreAdj",): (-1000, 1000),
}
IPVS_TIMEOUTS = ("tcpTimeout", "tcpFinTimeout", "udpTimeout")
_SECOND = 10**9
_DEFAULT_SYNC = 30 * _SECOND


def check(document: Document) -> list[Finding]:
    """Everything there is to say about a KubeProxyConfiguration; an ERROR is what kube-proxy refuses, or logs and ignores."""
    content = document.content
    if not isinstance(content, dict) or document.kind != (API_VERSION, KIND):
        return [document.finding(Severity.ERROR, (), f"not a configuration; expected {API_VERSION}, {KIND}")]
    said = [*_shape(document, (), content, KUBE_PROXY_CONFIGURATION), *_twice(document)]
    if findings.refused([one for one in said if not one.message.startswith(_IGNORED)]):
        return said
    values = _Values(document)
    return [
        *said,
        *_mode(values),
        *_numbers(values),
        *_sync(values),
        *_ipvs(values),
        *_addresses(values),
        *_local(values),
        *_logging(values),
    ]


_IGNORED = "kube-proxy logs it and goes on without it"


# ---- shape: what decoding refuses


def _shape(document: Document, place: Path, content: Mapping[Any, Any], schema: Schema) -> Iterator[Finding]:
    for name, value in content.items():
        path = (*place, str(name))
        wanted = schema.get(name)
        if wanted is None:
            near = findings.nearest(str(name), schema)
            yield document.finding(Severity.ERROR, path, f"{_IGNORED}: unknown key", nearest=near)
        elif value is None and wanted is Type.DURATION:
            yield document.finding(Severity.ERROR, path, "null, which is no duration; leave the key out")
        elif value is None or wanted is Type.ANYTHING:
            continue
        elif not isinstance(wanted, Type):
            if isinstance(value, dict):
                yield from _shape(document, path, value, wanted)
            else:
                yield document.finding(Severity.ERROR, path, "of the wrong type", value=value, allowed="a mapping")
        elif not _fits(value, wanted):
            yield document.finding(Severity.ERROR, path, "of the wrong type", value=value, allowed=wanted.value)


def _fits(value: Any, wanted: Type) -> bool:
    is_bool = isinstance(value, bool)
    match wanted:
        case Type.BOOL:
            return is_bool
        case Type.NUMBER:
            return isinstance(value, int | float) and not is_bool
        case Type.INT32:
            return isinstance(value, int) and not is_bool and -(2**31) <= value < 2**31
        case Type.STRINGS:
            return isinstance(value, list) and all(one is None or isinstance(one, str) for one in value)
        case Type.GATES:
            return isinstance(value, dict) and all(one is None or isinstance(one, bool) for one in value.values())
    return isinstance(value, str) and (wanted is Type.STRING or durations.parse(value) is not None)


def _twice(document: Document) -> Iterator[Finding]:
    for path in document.twice:
        yield document.finding(Severity.ERROR, path, f"{_IGNORED}: stands here twice, the last one counts")


# ---- values: what validation refuses


class _Values:
    """The values of a document whose shape is right, with kube-proxy's defaults."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def get(self, *path: str) -> Any:
        found: Any = self.document.content
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        return found

    def nanoseconds(self, *path: str) -> int:
        return durations.parse(self.get(*path) or "0") or 0

    @property
    def mode(self) -> str:
        return self.get("mode") or "iptables"

    def error(self, path: Path, message: str, allowed: str = "", nearest: str = "") -> Finding:
        value = self.get(*[str(step) for step in path if isinstance(step, str)])
        value = value[path[-1]] if isinstance(path[-1], int) else value
        return self.document.finding(Severity.ERROR, path, message, value=value, allowed=allowed, nearest=nearest)

    def advice(self, message: str, *path: str) -> Finding:
        return self.document.finding(Severity.ADVICE, path, message)


def _mode(values: _Values) -> Iterator[Finding]:
    gates = values.get("featureGates") or {}
    modes = [one for one in MODES if one != "ipvs" or gates.get("KubeProxyIPVS", True)]  # null is off, says kube-proxy
    if values.mode not in modes:
        allowed = f"{', '.join(modes)} or nothing for the default"
        yield values.error(("mode",), "not a mode", allowed, findings.nearest(values.mode.strip(), modes))
    elif values.mode == "ipvs":
        yield values.advice("deprecated: off by default from kube-proxy 1.40 on, gone from 1.43 on", "mode")
    elif not values.get("mode"):
        yield values.advice("without a mode it is iptables up to 1.39; 1.37 says that 1.40 takes nftables", "mode")


def _numbers(values: _Values) -> Iterator[Finding]:
    for path, (low, high) in _RANGES.items():
        if path[0] == "nftables" and values.mode != "nftables":
            continue
        value = values.get(*(str(step) for step in path))
        if value is not None and not low <= value <= high:
            yield values.error(path, "out of range", f"{low} to {high}")
    for path in _AT_LEAST_ZERO:
        value = values.get(*(str(step) for step in path))
        if value is not None and value < 0:
            yield values.error(path, "negative", "0 or more")
    for path in _NOT_NEGATIVE:
        if values.nanoseconds(*(str(step) for step in path)) < 0:
            yield values.error(path, "negative", "0 or more")


def _sync(values: _Values) -> Iterator[Finding]:
    section = values.mode if values.mode in MODES else "iptables"
    period = values.nanoseconds(section, "syncPeriod") or _DEFAULT_SYNC
    shortest = values.nanoseconds(section, "minSyncPeriod") or (0 if section == "ipvs" else _SECOND)
    if period <= 0:
        yield values.error((section, "syncPeriod"), "not positive", "more than 0")
    if shortest < 0:
        yield values.error((section, "minSyncPeriod"), "negative", "0 or more")
    if shortest > period:
        yield values.error((section, "minSyncPeriod"), "longer than syncPeriod", "at most syncPeriod")


def _ipvs(values: _Values) -> Iterator[Finding]:
    if values.mode != "ipvs":
        return
    for name in IPVS_TIMEOUTS:
        time = values.nanoseconds("ipvs", name)
        if time < 0:
            yield values.error(("ipvs", name), "negative", "0 or more")
        elif time == 0 and values.get("ipvs", name) is not None:
            message = "0 leaves what the node has, so an earlier value stays until the node starts anew"
            yield values.advice(message, "ipvs", name)
    for index, one in enumerate(values.get("ipvs", "excludeCIDRs") or ()):
        if addresses.cidr_family(one or "") is None:
            yield values.error(("ipvs", "excludeCIDRs", index), "not a range", "a range such as 10.0.0.0/8")
    scheduler = values.get("ipvs", "scheduler")
    if scheduler and scheduler not in IPVS_SCHEDULERS:
        message = "not a scheduler of Linux: kube-proxy takes the file and ends when the kernel refuses it"
        near = findings.nearest(scheduler, IPVS_SCHEDULERS)
        yield values.error(("ipvs", "scheduler"), message, ", ".join(IPVS_SCHEDULERS), near)


def _addresses(values: _Values) -> Iterator[Finding]:
    bind = values.get("bindAddress")
    if bind and addresses.address(bind) is None:
        yield values.error(("bindAddress",), "not an IP address")
    for name in ("healthzBindAddress", "metricsBindAddress"):
        text = values.get(name)
        if text and addresses.address(text) is None and not _binds(text):
            yield values.error((name,), "not an address", "IP or IP:PORT")
    seen: set[str] = set()
    for index, one in enumerate(values.get("nodePortAddresses") or ()):
        if one in KEYWORDS:
            if one in seen:
                yield values.error(("nodePortAddresses", index), "stands here twice")
            seen.add(one)
        elif addresses.cidr_family(one or "") is None:
            allowed = "a range such as 10.0.0.0/8, primary, localhost or all"
            yield values.error(("nodePortAddresses", index), "not a range", allowed)


def _binds(text: str) -> bool:
    parts = addresses.host_and_port(text)
    if parts is None or addresses.address(parts[0]) is None:
        return False
    return re.fullmatch(r"[-+]?[0-9]{1,9}", parts[1]) is not None and 1 <= int(parts[1]) <= 65535


def _local(values: _Values) -> Iterator[Finding]:
    mode = values.get("detectLocalMode") or "ClusterCIDR"
    if mode not in LOCAL_MODES:
        yield values.error(
            ("detectLocalMode",), "not a mode", ", ".join(LOCAL_MODES), findings.nearest(mode, LOCAL_MODES)
        )
    needs = {"BridgeInterface": "bridgeInterface", "InterfaceNamePrefix": "interfaceNamePrefix"}.get(mode)
    if needs is not None and not values.get("detectLocal", needs):
        path = ("detectLocal", needs)
        yield values.document.finding(Severity.ERROR, path, f"missing: detectLocalMode {mode} needs it")
    text = values.get("clusterCIDR")
    if mode == "ClusterCIDR" and text:
        families = [addresses.cidr_family(one) for one in text.split(",")]
        if None in families or len(families) > 2 or (len(families) == 2 and families[0] == families[1]):
            yield values.error(("clusterCIDR",), "not a range", "one range, or one of IPv4 and one of IPv6")


def _logging(values: _Values) -> Iterator[Finding]:
    form = values.get("logging", "format")
    if form not in (None, "", "text", "json"):
        yield values.error(("logging", "format"), "not a format", "text or json")
