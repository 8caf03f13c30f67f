"""What clients get, as a table; and which versions honour ipMode."""

import pytest

from ccm_lb.dataplane import versions
from ccm_lb.dataplane.clients import effect, supportmatrix
from ccm_lb.dataplane.clients.effect import Delivery, Path, Policy
from ccm_lb.dataplane.clients.supportmatrix import Honours
from ccm_lb.dataplane.model import Confidence, Kind, Mode, ServiceProxy, unknown
from ccm_lb.objects import IPMode, LoadBalancerIngress

VIP = LoadBalancerIngress(ip="203.0.113.10", ip_mode=IPMode.VIP)
PROXY = LoadBalancerIngress(ip="203.0.113.10", ip_mode=IPMode.PROXY)
UNSAID = LoadBalancerIngress(ip="203.0.113.10")
LATER = LoadBalancerIngress(ip="203.0.113.10", ip_mode="Router")
HOST = LoadBalancerIngress(hostname="lb.example.com")


def proxy(kind: Kind, version: str | None = None, mode: Mode | None = None, **settings: str) -> ServiceProxy:
    return ServiceProxy(kind, Confidence.LIKELY, mode, versions.parse(version) if version else None, settings)


IPTABLES = proxy(Kind.KUBE_PROXY, "1.37.2", Mode.IPTABLES)
IPVS = proxy(Kind.KUBE_PROXY, "1.37.2", Mode.IPVS)
NFTABLES = proxy(Kind.KUBE_PROXY, "1.37.2", Mode.NFTABLES)
OLD = proxy(Kind.KUBE_PROXY, "1.28.5", Mode.IPTABLES)
CILIUM = proxy(Kind.CILIUM, "1.18.1")
BROKEN_CILIUM = proxy(Kind.CILIUM, "1.18.0")
IGNORING = proxy(Kind.ANTREA_PROXY, "2.4.1", proxyLoadBalancerIPs="false")
NONE = proxy(Kind.NONE)
NOBODY_KNOWS = unknown("DaemonSets could not be looked at")


@pytest.mark.parametrize(
    ("found", "ingress", "delivery", "outside", "inside"),
    [
        (IPTABLES, VIP, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (IPTABLES, UNSAID, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (IPTABLES, PROXY, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (IPVS, VIP, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (IPVS, PROXY, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (NFTABLES, PROXY, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (NFTABLES, VIP, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (IPTABLES, LATER, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (IPTABLES, HOST, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (IPTABLES, VIP, Delivery.ADDRESS, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (IPTABLES, PROXY, Delivery.ADDRESS, Path.BROKEN, Path.BROKEN),
        (IPTABLES, PROXY, Delivery.POD, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (OLD, PROXY, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (OLD, PROXY, Delivery.ADDRESS, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (proxy(Kind.KUBE_PROXY, "1.29.3"), PROXY, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.UNKNOWN),
        (proxy(Kind.KUBE_PROXY), VIP, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (proxy(Kind.KUBE_PROXY), PROXY, Delivery.ADDRESS, Path.UNKNOWN, Path.UNKNOWN),
        (CILIUM, PROXY, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (CILIUM, VIP, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (BROKEN_CILIUM, PROXY, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.SHORT_CUT),
        (IGNORING, VIP, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (proxy(Kind.GKE_DATAPLANE_V2), PROXY, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.UNKNOWN),
        (proxy(Kind.GKE_DATAPLANE_V2), VIP, Delivery.NODE_PORT, Path.LOAD_BALANCER, Path.UNKNOWN),
        (NONE, VIP, Delivery.NODE_PORT, Path.BROKEN, Path.BROKEN),
        (NONE, VIP, Delivery.POD, Path.LOAD_BALANCER, Path.LOAD_BALANCER),
        (NOBODY_KNOWS, VIP, Delivery.NODE_PORT, Path.UNKNOWN, Path.UNKNOWN),
        (NOBODY_KNOWS, PROXY, Delivery.POD, Path.LOAD_BALANCER, Path.UNKNOWN),
    ],
)
def test_what_clients_get(
    found: ServiceProxy, ingress: LoadBalancerIngress, delivery: Delivery, outside: Path, inside: Path
) -> None:
    outcomes = effect.outcomes(found, ingress, delivery, Policy.CLUSTER)
    assert [(one.client.value, one.path) for one in outcomes] == [
        ("outside", outside),
        ("node", inside),
        ("pod", inside),
    ]
    assert all(one.reason for one in outcomes)
    assert all(one.source for one in outcomes if one.path is not Path.UNKNOWN)


def test_policy_local_keeps_the_source_outside_and_binds_ipvs_alone_inside() -> None:
    def reasons(found: ServiceProxy) -> list[str]:
        return [one.reason for one in effect.outcomes(found, VIP, Delivery.NODE_PORT, Policy.LOCAL)]

    assert "the source address is kept" in reasons(IPTABLES)[0]
    assert "does not bind clients inside" in reasons(IPTABLES)[1]
    assert "to pods on the same node alone" in reasons(IPVS)[2]
    assert "Local" not in reasons(CILIUM)[1]


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        (Kind.KUBE_PROXY, "1.28.15", Honours.NO),
        (Kind.KUBE_PROXY, "1.29.0", Honours.UNKNOWN),
        (Kind.KUBE_PROXY, "1.30.0", Honours.YES),
        (Kind.KUBE_PROXY, "1.30.0-rc.1", Honours.UNKNOWN),
        (Kind.KUBE_PROXY, "1.37.2", Honours.YES),
        (Kind.CILIUM, "1.16.5", Honours.NO),
        (Kind.CILIUM, "1.17.0-rc.1", Honours.UNKNOWN),
        (Kind.CILIUM, "1.17.6", Honours.YES),
        (Kind.CILIUM, "1.18.0", Honours.NO),
        (Kind.CILIUM, "1.18.1", Honours.YES),
        (Kind.CILIUM, "1.20.0", Honours.YES),
        (Kind.ANTREA_PROXY, "1.15.2", Honours.NO),
        (Kind.ANTREA_PROXY, "2.0.0", Honours.YES),
        (Kind.KUBE_ROUTER, "2.5.0", Honours.UNKNOWN),
        (Kind.CALICO_EBPF, "3.30.2", Honours.UNKNOWN),
    ],
)
def test_who_honours_ip_mode(kind: Kind, version: str, expected: Honours) -> None:
    assert supportmatrix.ip_mode(proxy(kind, version)).honours is expected


def test_the_known_differences_leave_no_version_out_and_none_twice() -> None:
    for kind in {one.kind for one in supportmatrix.DIFFERENCES}:
        rows = [one for one in supportmatrix.DIFFERENCES if one.kind is kind]
        assert [one.since for one in rows[1:]] == [one.until for one in rows[:-1]]
        assert (rows[0].since, rows[-1].until) == (None, None)
        assert all(one.reason and one.source for one in rows)


@pytest.mark.scenario("B81")
@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("v1.16.5", "clients inside the cluster bypass the load balancer (Cilium knows ipMode from 1.17 on)"),
        ("v1.17.6", ""),
        ("v1.18.0", "clients inside the cluster bypass the load balancer (Cilium 1.18.0 does not look at ipMode"),
        ("v1.18.1", ""),
    ],
)
def test_a_proxy_that_ignores_a_published_mode_is_warned_of(version: str, words: str) -> None:
    message = effect.mismatch(proxy(Kind.CILIUM, version), PROXY)
    assert words in message
    assert bool(words) is bool(message)


@pytest.mark.parametrize(
    ("found", "ingress"),
    [
        (NOBODY_KNOWS, PROXY),
        (proxy(Kind.CILIUM), PROXY),
        (proxy(Kind.CALICO_EBPF, "3.30.2"), PROXY),
        (proxy(Kind.KUBE_PROXY, "1.29.1"), PROXY),
        (BROKEN_CILIUM, VIP),
        (BROKEN_CILIUM, HOST),
        (IGNORING, PROXY),
        (NONE, PROXY),
    ],
)
def test_nothing_is_warned_of_on_a_guess_or_without_need(found: ServiceProxy, ingress: LoadBalancerIngress) -> None:
    assert effect.mismatch(found, ingress) == ""


def test_a_short_cut_that_is_published_and_never_taken_is_warned_of() -> None:
    assert "ipMode VIP of 203.0.113.10 is not what" in effect.mismatch(IGNORING, VIP)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("5.4.0-150-generic", "5.7.0"),
        ("5.7.0", "5.15.0-1034-gke"),
        ("1.9", "1.10"),
        ("1.18.0-rc.1", "1.18.0"),
        ("v1.34.4+k3s1", "v1.37.2"),
        ("6.1.58+", "6.2"),
    ],
)
def test_versions_are_compared_as_numbers(older: str, newer: str) -> None:
    first, second = versions.parse(older), versions.parse(newer)
    assert first is not None
    assert second is not None
    assert first < second


def test_what_is_no_version() -> None:
    assert [versions.parse(one) for one in ("latest", "", "5", "5.x")] == [None] * 4
    assert str(versions.Version(1, 2, 3)) == "1.2.3"
    assert str(versions.Version(1, 2, 3, "rc.1")) == "1.2.3-rc.1"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.k8s.io/kube-proxy:v1.37.2", "1.37.2"),
        ("quay.io/cilium/cilium:v1.18.0@sha256:00", "1.18.0"),
        ("localhost:5000/kube-proxy", None),
        ("kube-proxy@sha256:00", None),
        ("kube-proxy:latest", None),
    ],
)
def test_versions_of_images(image: str, version: str | None) -> None:
    assert versions.of_image(image) == (versions.parse(version) if version else None)
