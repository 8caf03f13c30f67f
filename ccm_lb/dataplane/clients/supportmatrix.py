"""Which service proxy acts on ipMode, from which version on: data, each row with where it is known from."""

from __future__ import annotations

import dataclasses
import enum

from ccm_lb.dataplane.model import IP_MODE_GATE, Kind, Mode, ServiceProxy
from ccm_lb.dataplane.versions import Version


class Honours(enum.StrEnum):
    YES = "yes"
    NO = "no"
    NEVER_BOUND = "never bound"  # leaves every load balancer's address alone, whatever its ipMode
    UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Verdict:
    honours: Honours
    reason: str
    source: str


@dataclasses.dataclass(frozen=True)
class Difference:
    """From version `since` up to, and without, `until`; None is open. Pre-releases of a border are on neither side."""

    kind: Kind
    honours: Honours
    reason: str
    source: str
    since: Version | None = None
    until: Version | None = None

    def covers(self, version: Version) -> bool:
        return (self.since is None or version >= self.since) and (self.until is None or version < self.until)


_GATE = "kubernetes/enhancements KEP-1860; feature gate LoadBalancerIPMode"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(Kind.KUBE_PROXY, Honours.NO, "kube-proxy knows ipMode from 1.29 on", _GATE, until=Version(1, 29)),
    Difference(
        Kind.KUBE_PROXY,
        Honours.UNKNOWN,
        "kube-proxy 1.29 honours ipMode only with the feature gate LoadBalancerIPMode, which is off by default",
        _GATE,
        since=Version(1, 29),
        until=Version(1, 30),
    ),
    Difference(
        Kind.KUBE_PROXY, Honours.YES, "kube-proxy honours ipMode by default from 1.30 on", _GATE, since=Version(1, 30)
    ),
    Difference(
        Kind.CILIUM, Honours.NO, "Cilium knows ipMode from 1.17 on", "cilium/cilium PR 34780", until=Version(1, 17)
    ),
    Difference(
        Kind.CILIUM,
        Honours.YES,
        "Cilium honours ipMode from 1.17 on",
        "cilium/cilium PR 34780",
        since=Version(1, 17),
        until=Version(1, 18),
    ),
    Difference(
        Kind.CILIUM,
        Honours.NO,
        "Cilium 1.18.0 does not look at ipMode; 1.18.1 does again",
        "cilium/cilium issue 40913",
        since=Version(1, 18),
        until=Version(1, 18, 1),
    ),
    Difference(
        Kind.CILIUM,
        Honours.YES,
        "Cilium honours ipMode, from 1.18.1 on again",
        "cilium/cilium PR 40915",
        since=Version(1, 18, 1),
    ),
    Difference(
        Kind.ANTREA_PROXY,
        Honours.NO,
        "Antrea Proxy knows ipMode from 2.0 on",
        "antrea-io/antrea docs/antrea-proxy.md",
        until=Version(2, 0),
    ),
    Difference(
        Kind.ANTREA_PROXY,
        Honours.YES,
        "Antrea Proxy honours ipMode from 2.0 on",
        "antrea-io/antrea docs/antrea-proxy.md",
        since=Version(2, 0),
    ),
)


def ip_mode(proxy: ServiceProxy) -> Verdict:
    """Whether this proxy acts on ipMode. Without a version, or for a proxy of which nothing is known here: UNKNOWN."""
    if proxy.kind is Kind.ANTREA_PROXY and proxy.settings.get("proxyLoadBalancerIPs") == "false":
        reason = "with proxyLoadBalancerIPs false Antrea Proxy leaves load balancers' addresses alone"
        return Verdict(Honours.NEVER_BOUND, reason, "antrea-io/antrea docs/antrea-proxy.md")
    if (gated := _gated(proxy)) is not None:
        return gated
    known = [one for one in DIFFERENCES if one.kind is proxy.kind]
    if not known:
        return Verdict(Honours.UNKNOWN, f"whether {proxy.kind} acts on ipMode is not known here", "")
    if proxy.version is None:
        return Verdict(
            Honours.UNKNOWN, f"whether {proxy.kind} acts on ipMode depends on its version, which is not known", ""
        )
    borders = {one.since for one in known}
    release = dataclasses.replace(proxy.version, pre="")
    if proxy.version.pre and release in borders:
        return Verdict(Honours.UNKNOWN, f"{proxy.version} leads to the release that changed it", "")
    (found,) = [one for one in known if one.covers(proxy.version)]
    return Verdict(found.honours, found.reason, found.source)


def _gated(proxy: ServiceProxy) -> Verdict | None:
    """What a kube-proxy whose configuration was read makes of its feature gate; None where the version alone decides."""
    if proxy.kind is not Kind.KUBE_PROXY or proxy.version is None or not _FIRST_GATED <= proxy.version < _UNGATED:
        return None
    gate = proxy.settings.get(IP_MODE_GATE)
    if gate is not None:
        honours = Honours.YES if gate == "true" else Honours.NO
        return Verdict(honours, f"kube-proxy's configuration has the feature gate LoadBalancerIPMode {gate}", _GATE)
    if proxy.version < Version(1, 30) and proxy.mode not in (None, Mode.UNKNOWN):
        reason = "kube-proxy 1.29 needs the feature gate LoadBalancerIPMode, and its configuration does not have it"
        return Verdict(Honours.NO, reason, _GATE)
    return None


_FIRST_GATED, _UNGATED = Version(1, 29), Version(1, 32)
