"""Clusters of many kinds, and what is said of each; fixtures in tests/data name their project, version and source."""

import dataclasses
import re
from typing import Any

import pytest
import yaml

from ccm_lb.dataplane.cluster import infer
from ccm_lb.dataplane.cluster.observed import Observed, Withheld
from ccm_lb.dataplane.model import DETECT_LOCAL, IP_MODE_GATE, NO_DETECTOR, Confidence, Kind, Mode
from tests import data
from tests.data import cluster, objects, observed

FORBIDDEN = Withheld("GET: forbidden")


@pytest.mark.parametrize(
    ("name", "replaced", "sentence", "confidence"),
    [
        ("kubeadm", {"MODE": "ipvs"}, "kube-proxy 1.37.2 (ipvs)", "likely"),
        ("kubeadm", {"MODE": '""'}, "kube-proxy 1.37.2 (iptables)", "likely"),
        ("kubeadm", {"MODE": "nftables"}, "kube-proxy 1.37.2 (nftables)", "likely"),
        ("kind", {}, "kube-proxy 1.33.1 (iptables)", "likely"),
        ("aks", {}, "kube-proxy 1.32.6 (ipvs)", "certain"),
        ("eks", {}, "kube-proxy 1.31.2-minimal-eksbuild.3 (iptables)", "likely"),
        ("k3s", {}, "kube-proxy 1.33.3+k3s1 (ipvs)", "likely"),
        ("k3s-cilium", {}, "cilium 1.17.6", "likely"),
        ("cilium", {"VERSION": "v1.18.0", "REPLACEMENT": "true"}, "cilium 1.18.0", "likely"),
        ("cilium", {"VERSION": "v1.12.9", "REPLACEMENT": "strict"}, "cilium 1.12.9", "likely"),
        ("rke2", {}, "kube-proxy 1.32.6-rke2r1-build20250618 (iptables)", "certain"),
        ("gke-classic", {}, "kube-proxy 1.29.1-gke.1589020 (iptables)", "certain"),
        ("gke-baremetal", {}, "gke-dataplane-v2", "likely"),
        ("calico-ebpf", {}, "calico-ebpf 3.30.2", "likely"),
        ("calico", {"BPF": "true"}, "calico-ebpf 3.30.2", "likely"),
        ("antrea", {"ADDRESSES": "true"}, "antrea-proxy 2.4.1", "likely"),
        ("kube-router", {}, "kube-router 2.5.0", "certain"),
        ("ovn-kubernetes", {}, "ovn-kubernetes", "likely"),
    ],
)
def test_what_each_cluster_runs(name: str, replaced: dict[str, str], sentence: str, confidence: str) -> None:
    found = infer.service_proxy(cluster(name, **replaced))
    assert (found.sentence(), found.confidence) == (sentence, confidence)
    assert found.evidence


@pytest.mark.parametrize(
    ("name", "replaced", "reason"),
    [
        ("microk8s", {}, "MicroK8s may run it inside kubelite"),
        ("cilium", {"VERSION": "v1.18.1", "REPLACEMENT": "false"}, "no kube-proxy"),
        ("calico", {"BPF": "false"}, "no kube-proxy"),
    ],
)
def test_what_cannot_be_told(name: str, replaced: dict[str, str], reason: str) -> None:
    found = infer.service_proxy(cluster(name, **replaced))
    if name == "microk8s":
        assert found.kind is Kind.UNKNOWN
        assert reason in found.sentence()
    else:
        # Every place was looked at, and an agent that leaves Services alone is no replacement.
        assert found.kind is Kind.NONE
        assert any("leaves Services to kube-proxy" in one.fact for one in found.evidence)


def test_every_cluster_file_names_its_project_and_its_source() -> None:
    for name in data.names():
        first = (data.CLUSTERS / f"{name}.yaml").read_text().splitlines()[0]
        assert re.match(r"# .*(\d+\.\d+|VERSION).*", first), name


# ---- B51


@pytest.mark.scenario("B51")
@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ('""', Mode.IPTABLES),
        ("null", Mode.IPTABLES),
        ('" "', Mode.IPTABLES),
        ("IPVS", Mode.IPVS),
        ("nftables", Mode.NFTABLES),
        ("userspace", Mode.UNKNOWN),
        ("[broken", Mode.UNKNOWN),
        ("5", Mode.UNKNOWN),
    ],
)
def test_a_mode_is_understood_or_unknown_and_never_guessed(mode: str, expected: Mode) -> None:
    found = infer.service_proxy(cluster("kubeadm", MODE=mode))
    assert (found.kind, found.mode) == (Kind.KUBE_PROXY, expected)


@pytest.mark.scenario("B51")
@pytest.mark.parametrize("seen", [None, FORBIDDEN], ids=["missing", "forbidden"])
def test_a_config_map_that_is_not_to_be_had_leaves_the_mode_unknown(seen: Withheld | None) -> None:
    whole = cluster("kubeadm", MODE="ipvs")
    found = infer.service_proxy(dataclasses.replace(whole, config_maps={("kube-system", "kube-proxy"): seen}))
    assert (found.kind, found.mode, found.confidence) == (Kind.KUBE_PROXY, Mode.UNKNOWN, Confidence.LIKELY)
    assert found.settings == {}


@pytest.mark.parametrize(
    "data_",
    [{}, {"other": "x"}, {"config.conf": "- a list"}, {"config.conf": ""}, None],
    ids=["empty", "another-key", "no-mapping", "nothing", "no-data"],
)
def test_a_config_map_without_a_configuration_leaves_the_mode_unknown(data_: dict[str, str] | None) -> None:
    whole = cluster("kubeadm", MODE="ipvs")
    config_map = {"kind": "ConfigMap", "data": data_}
    found = infer.service_proxy(dataclasses.replace(whole, config_maps={("kube-system", "kube-proxy"): config_map}))
    assert found.mode is Mode.UNKNOWN


def test_the_default_after_its_announced_change_is_not_guessed() -> None:
    items = objects("kubeadm", MODE='""')
    container(items)["image"] = "registry.k8s.io/kube-proxy:v1.40.0"
    assert infer.service_proxy(observed(items)).mode is Mode.UNKNOWN


# ---- B52


def container(items: list[data.Json]) -> data.Json:
    """The first container of the first DaemonSet."""
    daemonset = next(one for one in items if one["kind"] == "DaemonSet")
    found: data.Json = daemonset["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.scenario("B52")
def test_the_file_wins_over_the_flag_and_the_mounted_config_map_counts() -> None:
    found = infer.service_proxy(cluster("eks"))
    assert found.mode is Mode.IPTABLES
    said = [str(one) for one in found.evidence]
    assert "DaemonSet kube-system/kube-proxy: --proxy-mode=ipvs is ignored beside --config" in said
    assert any(one.startswith("ConfigMap kube-system/kube-proxy-config key config: mode iptables") for one in said)


@pytest.mark.scenario("B52")
def test_without_a_file_the_flag_counts() -> None:
    items = objects("eks")
    container(items)["command"] = ["kube-proxy", "--proxy-mode=ipvs"]
    assert infer.service_proxy(observed(items)).mode is Mode.IPVS


@pytest.mark.scenario("B52")
def test_the_daemonset_for_windows_does_not_count() -> None:
    found = infer.service_proxy(cluster("eks"))
    assert any("kube-proxy-windows: for Windows" in str(one) for one in found.evidence)
    only_windows = [one for one in objects("eks") if "windows" in one["metadata"]["name"] or one["kind"] == "Node"]
    assert infer.service_proxy(observed(only_windows)).kind is Kind.NONE


# ---- B55


@pytest.mark.scenario("B55")
def test_dataplane_v2_without_kube_proxy() -> None:
    found = infer.service_proxy(cluster("gke-baremetal"))
    assert found.kind is Kind.GKE_DATAPLANE_V2
    assert any("ipMode VIP is right" in one.fact for one in found.evidence), "MetalLB is named"


@pytest.mark.scenario("B55")
def test_static_pods_are_kube_proxy_too() -> None:
    found = infer.service_proxy(cluster("gke-classic"))
    assert (found.kind, found.mode) == (Kind.KUBE_PROXY, Mode.IPTABLES)
    assert any("is for no node" in one.fact for one in found.evidence)


@pytest.mark.scenario("B55")
def test_pods_that_must_not_be_seen_leave_it_unknown() -> None:
    whole = cluster("gke-classic")
    found = infer.service_proxy(dataclasses.replace(whole, pods=FORBIDDEN))
    assert found.kind is Kind.UNKNOWN
    assert "static pod" in found.reason


@pytest.mark.scenario("B55")
def test_kube_proxy_of_another_namespace_programs_the_same_nodes() -> None:
    items = objects("kubeadm", MODE="ipvs")
    for one in items:
        if one["kind"] != "Node":
            one["metadata"]["namespace"] = "networking"
    found = infer.service_proxy(observed(items))
    assert (found.kind, found.mode) == (Kind.KUBE_PROXY, Mode.IPVS)


# ---- B56


@pytest.mark.scenario("B56")
def test_a_roll_out_that_is_under_way_is_said() -> None:
    assert infer.service_proxy(cluster("aks")).rolling
    assert not infer.service_proxy(cluster("kubeadm", MODE="ipvs")).rolling
    items = objects("kubeadm", MODE="ipvs")
    next(one for one in items if one["kind"] == "DaemonSet")["metadata"]["generation"] = 2
    assert infer.service_proxy(observed(items)).rolling, "the DaemonSet controller has not looked yet"


# ---- what is withheld, and what contradicts itself


def test_without_daemonsets_a_config_map_proves_nothing() -> None:
    whole = cluster("kubeadm", MODE="ipvs")
    found = infer.service_proxy(dataclasses.replace(whole, daemonsets=FORBIDDEN))
    assert found.kind is Kind.UNKNOWN
    assert found.sentence() == "unknown, because DaemonSets could not be looked at (GET: forbidden)"
    assert "does not say that anything reads it" in found.evidence[0].fact
    absent = dataclasses.replace(whole, daemonsets=FORBIDDEN, config_maps={("a", "b"): None, ("a", "c"): FORBIDDEN})
    assert infer.service_proxy(absent).evidence == ()


def test_without_daemonsets_a_node_or_a_pod_still_tells() -> None:
    found = infer.service_proxy(dataclasses.replace(cluster("k3s"), daemonsets=FORBIDDEN))
    assert found.mode is Mode.IPVS
    assert "not seen" in found.evidence[-1].fact


def test_two_that_claim_the_services_are_unknown() -> None:
    items = [*objects("kubeadm", MODE="iptables"), *objects("cilium", VERSION="v1.17.6", REPLACEMENT="true")]
    found = infer.service_proxy(observed(items))
    assert found.kind is Kind.UNKNOWN
    assert "both claim the Services" in found.reason
    beside_k3s = [*objects("k3s"), *objects("cilium", VERSION="v1.17.6", REPLACEMENT="true")]
    assert infer.service_proxy(observed(beside_k3s)).kind is Kind.UNKNOWN


def test_cilium_without_its_replacement_leaves_kube_proxy_in_charge() -> None:
    items = [*objects("kubeadm", MODE="iptables"), *objects("cilium", VERSION="v1.17.6", REPLACEMENT="false")]
    found = infer.service_proxy(observed(items))
    assert found.kind is Kind.KUBE_PROXY
    assert any("cilium: runs, and leaves Services to kube-proxy" in str(one) for one in found.evidence)


def test_an_agent_whose_configuration_is_not_to_be_seen_is_not_decided_about() -> None:
    whole = cluster("cilium", VERSION="v1.18.1", REPLACEMENT="true")
    place = ("kube-system", "cilium-config")
    forbidden = infer.service_proxy(dataclasses.replace(whole, config_maps={place: FORBIDDEN}))
    assert "was not seen (GET: forbidden)" in forbidden.sentence()
    missing = infer.service_proxy(dataclasses.replace(whole, config_maps={place: None}))
    assert "no ConfigMap cilium-config" in missing.sentence()
    calico = infer.service_proxy(dataclasses.replace(cluster("calico", BPF="true"), felix=FORBIDDEN))
    assert "FelixConfiguration was not seen" in calico.sentence()


def test_nodes_that_must_not_be_seen_leave_it_unknown() -> None:
    found = infer.service_proxy(Observed(nodes=FORBIDDEN))
    assert "the nodes, which tell k3s and its like, could not be looked at" in found.sentence()


def test_a_part_of_the_namespaces_proves_no_absence() -> None:
    found = infer.service_proxy(observed(objects("calico", BPF="false"), everywhere=False))
    assert "other namespaces than kube-system" in found.sentence()


def test_a_cluster_without_nodes_is_unknown() -> None:
    assert "no nodes to run them yet" in infer.service_proxy(Observed()).sentence()


def test_a_replacement_with_pods_unseen_says_so() -> None:
    found = infer.service_proxy(dataclasses.replace(cluster("gke-baremetal"), pods=FORBIDDEN))
    assert found.kind is Kind.GKE_DATAPLANE_V2
    assert any("could not be looked at" in one.fact for one in found.evidence)


# ---- single forms


@pytest.mark.parametrize(
    ("annotations", "kind"),
    [
        ({}, Kind.UNKNOWN),
        ({"k3s.io/node-args": "not json"}, Kind.UNKNOWN),
        ({"k3s.io/node-args": '"no list"'}, Kind.UNKNOWN),
        ({"k3s.io/node-args": '["server"]'}, Kind.KUBE_PROXY),
        ({"k3s.io/node-args": '["server","--disable-kube-proxy=true"]'}, Kind.NONE),
        ({"k3s.io/node-args": '["server","--disable-kube-proxy=false"]'}, Kind.KUBE_PROXY),
    ],
)
def test_k3s_by_what_its_nodes_say(annotations: dict[str, str], kind: Kind) -> None:
    node = objects("k3s")[0]
    node["metadata"]["annotations"] = annotations
    assert infer.service_proxy(observed([node])).kind is kind


def test_rke2_without_its_static_pod_runs_none() -> None:
    nodes = [one for one in objects("rke2") if one["kind"] == "Node"]
    found = infer.service_proxy(observed(nodes))
    assert found.kind is Kind.NONE
    assert any("RKE2 runs kube-proxy as a static pod" in one.fact for one in found.evidence)


def test_a_pod_of_a_daemonset_is_no_static_pod() -> None:
    items = objects("rke2")
    items[0]["metadata"]["annotations"] = {}
    assert infer.service_proxy(observed(items)).kind is Kind.NONE


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"antreaProxy": {"proxyAll": False}}, Kind.NONE),
        ({"antreaProxy": {"proxyAll": True, "enable": False}}, Kind.NONE),
        ({"antreaProxy": {"proxyAll": True}, "featureGates": {"AntreaProxy": False}}, Kind.NONE),
        ({"antreaProxy": {"proxyAll": True}}, Kind.ANTREA_PROXY),
        ({"antreaProxy": "x", "featureGates": 5}, Kind.NONE),
        ([], Kind.NONE),
        (None, Kind.NONE),
    ],
)
def test_antrea_serves_only_with_proxy_all(change: Any, kind: Kind) -> None:
    items = objects("antrea", ADDRESSES="true")
    items[0]["data"]["antrea-agent.conf"] = "" if change is None else yaml.safe_dump(change)
    assert infer.service_proxy(observed(items)).kind is kind


def test_antrea_that_leaves_addresses_alone_says_so() -> None:
    found = infer.service_proxy(cluster("antrea", ADDRESSES="false"))
    assert found.settings["proxyLoadBalancerIPs"] == "false"


def test_kube_router_without_its_service_proxy_is_none() -> None:
    items = objects("kube-router")
    container(items)["args"] = ["--run-service-proxy=false"]
    assert infer.service_proxy(observed(items)).kind is Kind.NONE
    container(items)["image"] = "example.com/other:v1"
    assert infer.service_proxy(observed(items)).kind is Kind.NONE


def test_settings_of_ipvs_are_told() -> None:
    found = infer.service_proxy(cluster("aks"))
    assert found.settings == {
        "ipvs.scheduler": "lc",
        "ipvs.tcpTimeout": "900s",
        "ipvs.tcpFinTimeout": "120s",
        "ipvs.udpTimeout": "300s",
    }
    assert infer.service_proxy(cluster("kubeadm", MODE="ipvs")).settings["ipvs.scheduler"] == "lc"


def test_a_daemonset_with_kube_proxys_name_alone_leaves_the_mode_unknown() -> None:
    items = objects("kubeadm", MODE="ipvs")
    container(items).update(image="example.com/other:v1", command=["/other"])
    found = infer.service_proxy(observed(items))
    assert (found.kind, found.mode) == (Kind.KUBE_PROXY, Mode.UNKNOWN)


def test_a_second_daemonset_is_named() -> None:
    items = objects("kubeadm", MODE="ipvs")
    second = {**items[1], "metadata": {"name": "kube-proxy-extra", "namespace": "kube-system"}}
    found = infer.service_proxy(observed([*items, second]))
    assert "DaemonSet kube-system/kube-proxy-extra: runs kube-proxy too" in [str(one) for one in found.evidence]


def test_a_file_of_the_node_is_not_seen() -> None:
    items = objects("kubeadm", MODE="ipvs")
    other: data.Json = {"mountPath": "/var/lib/kube-proxy", "name": "lib-modules"}
    for mounts in ([], [other]):
        container(items)["volumeMounts"] = mounts
        found = infer.service_proxy(observed(items))
        assert found.mode is Mode.UNKNOWN
        assert any("is a file of the node" in one.fact for one in found.evidence)


def test_a_shells_script_is_taken_apart_as_far_as_it_can_be() -> None:
    items = objects("gke-classic")
    pod = next(one for one in items if one["kind"] == "Pod")
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", "kube-proxy --proxy-mode=ipvs >log"]
    assert infer.service_proxy(observed(items)).mode is Mode.IPVS
    pod["spec"]["containers"][0]["command"] = ["sh", "-c", "an 'open quote"]
    assert infer.service_proxy(observed(items)).kind is Kind.NONE


def test_the_config_maps_that_are_asked_for() -> None:
    assert infer.config_maps(Observed(FORBIDDEN)) == [("kube-system", "kube-proxy")]
    assert infer.config_maps(cluster("eks")) == [("kube-system", "kube-proxy"), ("kube-system", "kube-proxy-config")]
    both = observed([*objects("antrea", ADDRESSES="true"), *objects("k3s-cilium")])
    assert set(infer.config_maps(both)) == {
        ("kube-system", "kube-proxy"),
        ("kube-system", "antrea-config"),
        ("kube-system", "cilium-config"),
    }


def test_the_daemonsets_whose_changes_matter() -> None:
    by_name = {one["metadata"]["name"]: one for one in objects("gke-baremetal") if one["kind"] == "DaemonSet"}
    assert [name for name, one in by_name.items() if infer.relevant(one)] == ["anetd"]
    assert infer.relevant(next(one for one in objects("aks") if one["kind"] == "DaemonSet"))


def test_the_answer_as_json() -> None:
    answer = infer.service_proxy(cluster("aks")).as_json()
    assert {name: answer[name] for name in ("kind", "mode", "version", "confidence", "rolling")} == {
        "kind": "kube-proxy",
        "mode": "ipvs",
        "version": "1.32.6",
        "confidence": "certain",
        "rolling": True,
    }
    assert infer.service_proxy(Observed()).as_json()["mode"] is None


# ---- what kube-proxy's configuration says beside its mode


def configured(version: str, text: str) -> dict[str, str]:
    config_map, daemonset, *rest = objects("kubeadm", MODE="iptables")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    container["image"] = f"registry.k8s.io/kube-proxy:{version}"
    items = [{**config_map, "data": {"config.conf": text}}, daemonset, *rest]
    return dict(infer.service_proxy(observed(items)).settings)


@pytest.mark.parametrize(
    ("version", "gates", "expected"),
    [
        ("v1.29.3", "{LoadBalancerIPMode: true}", "true"),
        ("v1.29.3", "{AllAlpha: true}", "true"),
        ("v1.29.3", "{AllAlpha: true, LoadBalancerIPMode: false}", "false"),
        ("v1.31.0", "{AllAlpha: true}", None),
        ("v1.31.0", "{AllBeta: false}", "false"),
        ("v1.31.0", "{AllBeta: false, LoadBalancerIPMode: true}", "true"),
        ("v1.31.0", "{LoadBalancerIPMode: maybe}", None),
        ("v1.31.0", "[LoadBalancerIPMode]", None),
        ("v1.32.0", "{LoadBalancerIPMode: false}", None),
        ("latest", "{LoadBalancerIPMode: false}", None),
    ],
)
def test_the_gate_for_ip_mode_is_a_setting_while_there_is_one(version: str, gates: str, expected: str | None) -> None:
    assert configured(version, f"clusterCIDR: 10.0.0.0/8\nfeatureGates: {gates}\n").get(IP_MODE_GATE) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mode: iptables", NO_DETECTOR),
        ("detectLocalMode: ClusterCIDR", NO_DETECTOR),
        ("clusterCIDR: 10.244.0.0/16", None),
        ("detectLocalMode: NodeCIDR", None),
    ],
)
def test_a_kube_proxy_that_was_not_told_the_pods_addresses_is_known_as_one(text: str, expected: str | None) -> None:
    assert configured("v1.37.2", text).get(DETECT_LOCAL) == expected


def test_k3s_tells_its_kube_proxy_the_pods_addresses() -> None:
    assert DETECT_LOCAL not in infer.service_proxy(cluster("k3s")).settings
