"""Load balancers in the cluster itself, by what runs them; and which of them serves a Service."""

from typing import Any

import pytest

from ccm_lb.dataplane.cluster import announcers, infer
from ccm_lb.dataplane.cluster.announcers import Announcer
from ccm_lb.dataplane.cluster.observed import Observed, Withheld
from ccm_lb.dataplane.model import Delivery
from ccm_lb.objects import Service, parse_service
from tests.data import Json, cluster, observed


def workload(
    name: str, image: str, *, kind: str = "DaemonSet", namespace: str = "kube-system", **container: Any
) -> Json:
    pod = {"containers": [{"name": "it", "image": image, **container}]}
    return {
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": pod}} if kind == "DaemonSet" else pod,
    }


def config_map(name: str, **data: str) -> Json:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}, "data": data}


def env(**values: str) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]


ADDRESS, NODE_PORT = Delivery.ADDRESS, Delivery.NODE_PORT
METALLB = workload("speaker", "quay.io/metallb/speaker:v0.15.2", namespace="metallb-system")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([METALLB], [("MetalLB", ADDRESS, "")]),
        ([workload("speaker", "mirror.example.com/speaker:v1")], [("MetalLB", ADDRESS, "")]),
        ([workload("metallb-speaker", "docker.io/bitnami/metallb-speaker:0.14")], [("MetalLB", ADDRESS, "")]),
        ([workload("metallb-speaker", "mirror.example.com/abc@sha256:00")], [("MetalLB", ADDRESS, "")]),
        ([workload("speaker", "quay.io/metallb/speaker:v0.15.2", args=["--lb-class=metallb.io/here"])],
         [("MetalLB", ADDRESS, "metallb.io/here")]),
        ([workload("loud", "example.com/loud/speaker:v1")], []),
        ([workload("kube-vip-ds", "ghcr.io/kube-vip/kube-vip:v1.0.0", env=env(svc_enable="true"))], [("kube-vip", ADDRESS, "")]),
        ([workload("kube-vip-n1", "ghcr.io/kube-vip/kube-vip:v1.0.0", kind="Pod", args=["manager", "--services"])],
         [("kube-vip", ADDRESS, "")]),
        ([workload("kube-vip-ds", "ghcr.io/kube-vip/kube-vip:v1.0.0", env=env(svc_enable="true", lb_class_only="true"))],
         [("kube-vip", ADDRESS, "kube-vip.io/kube-vip-class")]),
        ([workload("kube-vip-ds", "ghcr.io/kube-vip/kube-vip:v1.0.0", env=env(cp_enable="true"))], []),
        ([workload("lbnodeagent", "registry.gitlab.com/purelb/purelb/lbnodeagent:v0.13.0")], [("PureLB", ADDRESS, "")]),
        ([workload("openelb-speaker", "docker.io/kubesphere/openelb-speaker:v0.6.0")], [("OpenELB", ADDRESS, "")]),
        ([workload("loxilb-lb", "ghcr.io/loxilb-io/loxilb:latest")], [("LoxiLB", NODE_PORT, "loxilb.io/loxilb")]),
        ([workload("svclb-web-1a2b", "rancher/klipper-lb:v0.4.13"), workload("svclb-db-3c4d", "rancher/klipper-lb:v0.4.13")],
         [("k3s ServiceLB", NODE_PORT, "")]),
        ([workload("kube-router", "cloudnativelabs/kube-router:v2.5.0", args=["--advertise-loadbalancer-ip=true"])],
         [("kube-router", ADDRESS, "")]),
        ([workload("kube-router", "cloudnativelabs/kube-router:v2.5.0", args=["--run-service-proxy=true"])], []),
        ([workload("cilium", "quay.io/cilium/cilium:v1.18.1"),
          config_map("cilium-config", **{"enable-l2-announcements": "true", "enable-bgp-control-plane": "true"})],
         [("Cilium L2 announcements", ADDRESS, ""), ("Cilium BGP", ADDRESS, "")]),
        ([workload("cilium", "quay.io/cilium/cilium:v1.18.1"), config_map("cilium-config", **{"enable-lb-ipam": "true"})], []),
        ([workload("antrea-agent", "antrea/antrea-agent-ubuntu:v2.4.1"),
          config_map("antrea-config", **{"antrea-agent.conf": "featureGates: {ServiceExternalIP: true}"})],
         [("Antrea", ADDRESS, "")]),
        ([workload("antrea-agent", "antrea/antrea-agent-ubuntu:v2.4.1"), config_map("antrea-config", **{"antrea-agent.conf": "["})], []),
        ([workload("coredns", "registry.k8s.io/coredns:v1.12.0")], []),
    ],
)  # fmt: skip
def test_what_announces_addresses(items: list[Json], expected: list[tuple[str, Delivery, str]]) -> None:
    found = announcers.find(observed(items))
    assert [(one.name, one.delivery, one.own_class) for one in found] == expected
    assert all(one.source for one in found)


def test_one_that_runs_on_no_node_announces_nothing() -> None:
    idle = {**METALLB, "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}}
    assert announcers.find(observed([idle])) == ()
    assert announcers.find(Observed(daemonsets=Withheld("forbidden"), pods=Withheld("forbidden"))) == ()


def test_they_are_evidence_beside_the_service_proxy() -> None:
    said = [str(one) for one in infer.service_proxy(cluster("gke-baremetal")).evidence]
    assert any(
        one.startswith("DaemonSet kube-system/metallb-speaker: MetalLB announces addresses from the nodes")
        for one in said
    )
    (one,) = announcers.find(cluster("gke-baremetal"))
    assert one.as_json() == {
        "name": "MetalLB",
        "delivery": "address",
        "source": "DaemonSet kube-system/metallb-speaker",
        "loadBalancerClass": None,
    }


# ---- which of them serves a Service


def service(load_balancer_class: str = "", finalizer: str = "", **annotations: str) -> Service:
    metadata = {"name": "web", "namespace": "shop", "uid": "u", "annotations": annotations}
    spec = {"type": "LoadBalancer", **({"loadBalancerClass": load_balancer_class} if load_balancer_class else {})}
    return parse_service({"metadata": {**metadata, "finalizers": [finalizer] if finalizer else []}, "spec": spec})


HERE = Announcer("MetalLB", ADDRESS, "DaemonSet metallb-system/speaker")
OF_A_CLASS = Announcer("MetalLB", ADDRESS, "DaemonSet metallb-system/speaker", "metallb.io/here")
SERVICE_LB = Announcer("k3s ServiceLB", NODE_PORT, "DaemonSet kube-system/svclb-web")
POOL = {"metallb.io/ip-allocated-from-pool": "first"}
CLEANUP = "service.kubernetes.io/load-balancer-cleanup"


@pytest.mark.parametrize(
    ("asked", "found", "delivery", "words"),
    [
        (service(), [HERE], ADDRESS, "MetalLB serves it: DaemonSet metallb-system/speaker runs here, and the Service names no other"),
        (service(), [SERVICE_LB], NODE_PORT, "k3s ServiceLB serves it"),
        (service(), [], None, "nothing in the cluster shows who serves it"),
        (service(), [OF_A_CLASS], None, "nothing in the cluster shows who serves it"),
        (service("metallb.io/here"), [OF_A_CLASS], ADDRESS, "MetalLB serves it: loadBalancerClass metallb.io/here"),
        (service("example.com/other"), [HERE], None, "nothing in the cluster"),
        (service(finalizer=CLEANUP), [HERE], None, f"a cloud's controller serves it: finalizer {CLEANUP}"),
        (service(finalizer="ccm-lb.dev/load-balancer-cleanup"), [HERE], None, "a cloud's controller"),
        (service(**POOL), [], ADDRESS, "MetalLB serves it: annotation metallb.io/ip-allocated-from-pool"),
        (service(finalizer=CLEANUP, **POOL), [], ADDRESS, "MetalLB serves it: annotation"),
        (service(**{"purelb.io/allocated-by": "PureLB"}), [HERE], ADDRESS, "PureLB serves it"),
        (service(**{"kube-vip.io/vipHost": "n1"}), [HERE], ADDRESS, "kube-vip serves it"),
        (service("io.cilium/l2-announcer"), [], ADDRESS, "Cilium L2 announcements serves it"),
        (service("loxilb.io/loxilb"), [], NODE_PORT, "LoxiLB serves it"),
        (service("loxilb.io/loxilb", **{"loxilb.io/usepodnetwork": "yes"}), [], Delivery.POD, "LoxiLB serves it"),
    ],
)  # fmt: skip
def test_who_serves_a_service_is_told_by_the_service_then_by_what_runs(
    asked: Service, found: list[Announcer], delivery: Delivery | None, words: str
) -> None:
    serving = announcers.serving(asked, found)
    assert serving.delivery is delivery
    assert serving.reason.startswith(words)
