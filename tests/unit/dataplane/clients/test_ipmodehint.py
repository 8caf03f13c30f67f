"""What the choice of an ipMode is told of a cluster's service proxy."""

from __future__ import annotations

import pytest

from ccm_lb.dataplane.clients import ipmodehint
from ccm_lb.dataplane.model import Confidence, Kind, Mode, ServiceProxy, unknown
from ccm_lb.ipmode import ServiceProxyHint


def proxy(kind: Kind, mode: Mode | None = None, *, rolling: bool = False) -> ServiceProxy:
    return ServiceProxy(kind, Confidence.LIKELY, mode, rolling=rolling)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (proxy(Kind.KUBE_PROXY, Mode.IPVS), ServiceProxyHint.IPVS),
        (proxy(Kind.KUBE_PROXY, Mode.IPTABLES), ServiceProxyHint.IPTABLES),
        (proxy(Kind.KUBE_PROXY, Mode.NFTABLES), ServiceProxyHint.NFTABLES),
        (proxy(Kind.KUBE_PROXY, Mode.UNKNOWN), ServiceProxyHint.UNKNOWN),
        (proxy(Kind.KUBE_PROXY), ServiceProxyHint.UNKNOWN),
        (proxy(Kind.CILIUM), ServiceProxyHint.OTHER),
        (proxy(Kind.NONE), ServiceProxyHint.OTHER),
        (unknown("forbidden"), ServiceProxyHint.UNKNOWN),
    ],
)
def test_the_service_proxy_is_taken_into_account_as_far_as_it_matters(
    found: ServiceProxy, expected: ServiceProxyHint
) -> None:
    assert ipmodehint.hint(found) is expected
    assert ipmodehint.following(found, ServiceProxyHint.IPTABLES) is expected


@pytest.mark.scenario("B56")
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            proxy(Kind.KUBE_PROXY, Mode.IPTABLES, rolling=True), ServiceProxyHint.IPVS, id="some nodes still run IPVS"
        ),
        pytest.param(proxy(Kind.CILIUM, rolling=True), ServiceProxyHint.IPVS, id="a replacement is on its way"),
        pytest.param(unknown("both claim the Services"), ServiceProxyHint.IPVS, id="nobody knows"),
        pytest.param(proxy(Kind.KUBE_PROXY, Mode.UNKNOWN), ServiceProxyHint.IPVS, id="the ConfigMap is broken"),
        pytest.param(proxy(Kind.KUBE_PROXY, Mode.IPTABLES), ServiceProxyHint.IPTABLES, id="no node runs it any more"),
        pytest.param(proxy(Kind.NONE), ServiceProxyHint.OTHER, id="it was removed"),
    ],
)
def test_ipvs_holds_on_until_it_is_known_to_be_gone(found: ServiceProxy, expected: ServiceProxyHint) -> None:
    assert ipmodehint.following(found, ServiceProxyHint.IPVS) is expected


@pytest.mark.scenario("B56")
def test_ipvs_counts_from_its_first_node_on() -> None:
    arriving = proxy(Kind.KUBE_PROXY, Mode.IPVS, rolling=True)
    assert ipmodehint.following(arriving, ServiceProxyHint.IPTABLES) is ServiceProxyHint.IPVS
