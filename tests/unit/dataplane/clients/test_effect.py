"""What clients get, as a table; and which versions honour ipMode."""

import pytest

from ccm_lb.dataplane import versions
from ccm_lb.dataplane.clients import effect, supportmatrix
from ccm_lb.dataplane.clients.effect import Client, Endpoints, Path, Policy, Spec
from ccm_lb.dataplane.clients.supportmatrix import Honours
from ccm_lb.dataplane.model import (
    DETECT_LOCAL,
    IP_MODE_GATE,
    NO_DETECTOR,
    Confidence,
    Delivery,
    Kind,
    Mode,
    ServiceProxy,
    unknown,
)
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
    outcomes = effect.outcomes(found, ingress, delivery, Spec())
    assert [(one.client.value, one.path) for one in outcomes] == [
        ("outside", outside),
        ("node", inside),
        ("pod", inside),
    ]
    assert all(one.reason for one in outcomes)
    assert all(one.source for one in outcomes if one.path is not Path.UNKNOWN)


LOCAL = Spec(Policy.LOCAL)
BLIND = proxy(Kind.KUBE_PROXY, "1.37.2", Mode.NFTABLES, **{DETECT_LOCAL: NO_DETECTOR})
NO_MODE = proxy(Kind.KUBE_PROXY, "1.37.2", Mode.UNKNOWN)
HERE, ELSEWHERE = Endpoints.HERE, Endpoints.ELSEWHERE


@pytest.mark.parametrize(
    ("found", "ingress", "node", "pod"),
    [
        (IPTABLES, VIP, {None: Path.SHORT_CUT}, {None: Path.SHORT_CUT}),
        (NFTABLES, VIP, {None: Path.SHORT_CUT}, {None: Path.SHORT_CUT}),
        (IPVS, VIP, {HERE: Path.SHORT_CUT, ELSEWHERE: Path.BROKEN}, {HERE: Path.SHORT_CUT, ELSEWHERE: Path.SHORT_CUT}),
        (BLIND, VIP, {None: Path.SHORT_CUT}, {HERE: Path.SHORT_CUT, ELSEWHERE: Path.BROKEN}),
        (NO_MODE, VIP, {HERE: Path.SHORT_CUT, ELSEWHERE: Path.UNKNOWN}, {None: Path.SHORT_CUT}),
        (CILIUM, VIP, {HERE: Path.SHORT_CUT, ELSEWHERE: Path.UNKNOWN}, {HERE: Path.SHORT_CUT, ELSEWHERE: Path.UNKNOWN}),
        (proxy(Kind.KUBE_PROXY, "1.28.5", Mode.IPVS), PROXY, {HERE: Path.SHORT_CUT, ELSEWHERE: Path.BROKEN},
         {HERE: Path.SHORT_CUT, ELSEWHERE: Path.SHORT_CUT}),
        *((one, PROXY, {None: Path.LOAD_BALANCER}, {None: Path.LOAD_BALANCER}) for one in (IPTABLES, IPVS, NFTABLES, BLIND)),
    ],
)  # fmt: skip
def test_policy_local_tells_nodes_apart_where_the_node_takes_the_address(
    found: ServiceProxy,
    ingress: LoadBalancerIngress,
    node: dict[Endpoints | None, Path],
    pod: dict[Endpoints | None, Path],
) -> None:
    outside, *inside = effect.outcomes(found, ingress, Delivery.NODE_PORT, LOCAL)
    assert (outside.client, outside.endpoints) == (Client.OUTSIDE, None)
    for client, expected in ((Client.NODE, node), (Client.POD, pod)):
        assert {one.endpoints: one.path for one in inside if one.client is client} == expected
    assert all(one.reason for one in inside)


def test_the_reasons_of_policy_local_name_what_is_behind_them() -> None:
    def reason(found: ServiceProxy, client: Client, where: Endpoints | None) -> str:
        rows = effect.outcomes(found, VIP, Delivery.NODE_PORT, LOCAL)
        (one,) = [each for each in rows if (each.client, each.endpoints) == (client, where)]
        return one.reason

    assert "the source address is kept" in reason(IPTABLES, Client.OUTSIDE, None)
    assert "does not bind clients inside" in reason(IPTABLES, Client.NODE, None)
    assert "a pod on the same node" in reason(IPVS, Client.POD, HERE)
    assert "the client's source is the load balancer's own address" in reason(IPVS, Client.NODE, ELSEWHERE)
    assert "unless the network plug-in masquerades" in reason(IPVS, Client.NODE, ELSEWHERE)
    assert "clusterCIDR" in reason(BLIND, Client.POD, ELSEWHERE)
    assert "not known here of cilium" in reason(CILIUM, Client.POD, ELSEWHERE)


def test_affinity_and_source_ranges_are_told_where_they_make_a_difference() -> None:
    spec = Spec(affinity=True, source_ranges=True)
    outside, node, _ = effect.outcomes(IPVS, VIP, Delivery.NODE_PORT, spec)
    assert "sessionAffinity sends them to one pod" in outside.reason
    assert "loadBalancerSourceRanges" in node.reason
    outside, node, _ = effect.outcomes(IPVS, VIP, Delivery.ADDRESS, Spec())
    assert "sessionAffinity" not in outside.reason
    assert "loadBalancerSourceRanges" not in node.reason


@pytest.mark.parametrize(
    ("version", "gate", "mode", "expected"),
    [
        ("1.28.5", "true", Mode.IPTABLES, Honours.NO),
        ("1.29.3", "true", Mode.IPTABLES, Honours.YES),
        ("1.29.3", "false", Mode.IPTABLES, Honours.NO),
        ("1.29.3", None, Mode.IPTABLES, Honours.NO),
        ("1.29.3", None, Mode.UNKNOWN, Honours.UNKNOWN),
        ("1.30.1", None, Mode.IPTABLES, Honours.YES),
        ("1.31.9", "false", Mode.IPVS, Honours.NO),
        ("1.32.0", "false", Mode.IPVS, Honours.YES),
    ],
)
def test_the_feature_gate_decides_as_long_as_there_is_one(
    version: str, gate: str | None, mode: Mode, expected: Honours
) -> None:
    settings = {IP_MODE_GATE: gate} if gate else {}
    verdict = supportmatrix.ip_mode(proxy(Kind.KUBE_PROXY, version, mode, **settings))
    assert verdict.honours is expected
    assert verdict.source


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
