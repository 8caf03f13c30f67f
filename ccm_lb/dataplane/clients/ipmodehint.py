"""As much of a cluster's service proxy as the choice of an ipMode takes into account."""

from __future__ import annotations

from ccm_lb.dataplane.model import Kind, Mode, ServiceProxy
from ccm_lb.ipmode import ServiceProxyHint

_MODES = {
    Mode.IPTABLES: ServiceProxyHint.IPTABLES,
    Mode.NFTABLES: ServiceProxyHint.NFTABLES,
    Mode.IPVS: ServiceProxyHint.IPVS,
}


def hint(proxy: ServiceProxy) -> ServiceProxyHint:
    """What is known of `proxy` alone."""
    if proxy.kind is Kind.KUBE_PROXY and proxy.mode is not None:
        return _MODES.get(proxy.mode, ServiceProxyHint.UNKNOWN)
    return ServiceProxyHint.UNKNOWN if proxy.kind in (Kind.UNKNOWN, Kind.KUBE_PROXY) else ServiceProxyHint.OTHER


def following(proxy: ServiceProxy, before: ServiceProxyHint) -> ServiceProxyHint:
    """
    The hint after `before`, the last one.

    IPVS holds on until every node is known to run something else: it is what makes a difference, and what it asks for is safe with all.
    """
    now = hint(proxy)
    leaving = before is ServiceProxyHint.IPVS and (proxy.rolling or now is ServiceProxyHint.UNKNOWN)
    return before if leaving else now
