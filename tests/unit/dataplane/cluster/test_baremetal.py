"""GKE on bare metal: which machines can do without kube-proxy, and whether it is really gone."""

import dataclasses

import pytest

from ccm_lb.dataplane.cluster import baremetal
from ccm_lb.dataplane.cluster.baremetal import Fitness, Presence
from ccm_lb.dataplane.cluster.observed import Observed, Withheld
from ccm_lb.dataplane.model import Kind
from tests.data import cluster, objects, observed


@pytest.mark.parametrize(
    ("system", "kernel", "fitness"),
    [
        ("Ubuntu 22.04.5 LTS", "5.15.0-1034-gke", Fitness.FITS),
        ("Ubuntu 20.04.6 LTS", "5.4.0-150-generic", Fitness.UNFIT),
        ("Ubuntu 20.04.6 LTS", "5.7.0-1-generic", Fitness.FITS),
        ("Ubuntu 20.04.6 LTS", "5.6.19-050619-generic", Fitness.UNFIT),
        ("Ubuntu 24.04.2 LTS", "6.8.0-71-generic", Fitness.FITS),
        ("Ubuntu 20.04.6 LTS", "5.10", Fitness.FITS),
        ("Ubuntu 20.04.6 LTS", "", Fitness.CANNOT_TELL),
        ("Ubuntu 20.04.6 LTS", "custom", Fitness.CANNOT_TELL),
        ("Red Hat Enterprise Linux 8.6 (Ootpa)", "4.18.0-372.el8.x86_64", Fitness.FITS),
        ("Red Hat Enterprise Linux CoreOS 418.94", "5.14.0-427.el9_4.x86_64", Fitness.UNFIT),
        ("Debian GNU/Linux 12 (bookworm)", "6.1.0-21-amd64", Fitness.UNFIT),
        ("", "", Fitness.CANNOT_TELL),
    ],
)
def test_machines(system: str, kernel: str, fitness: Fitness) -> None:
    node = {"metadata": {"name": "n1"}, "status": {"nodeInfo": {"osImage": system, "kernelVersion": kernel}}}
    (machine,) = baremetal.preflight([node])
    assert (machine.node, machine.fitness) == ("n1", fitness)
    assert machine.reason


def test_a_node_without_a_status_cannot_be_told() -> None:
    assert baremetal.preflight([{"metadata": {"name": "n1"}}])[0].fitness is Fitness.CANNOT_TELL


@pytest.mark.parametrize(
    ("name", "replaced", "presence", "kind"),
    [
        ("gke-baremetal", {}, Presence.ABSENT, Kind.GKE_DATAPLANE_V2),
        ("kubeadm", {"MODE": "ipvs"}, Presence.PRESENT, Kind.UNKNOWN),
        ("gke-classic", {}, Presence.PRESENT, Kind.UNKNOWN),
        ("rke2", {}, Presence.PRESENT, Kind.UNKNOWN),
        ("k3s", {}, Presence.PRESENT, Kind.UNKNOWN),
        ("k3s-cilium", {}, Presence.ABSENT, Kind.CILIUM),
        ("microk8s", {}, Presence.CANNOT_TELL, Kind.UNKNOWN),
        ("kube-router", {}, Presence.ABSENT, Kind.KUBE_ROUTER),
        ("cilium", {"VERSION": "v1.18.1", "REPLACEMENT": "false"}, Presence.ABSENT, Kind.NONE),
    ],
)
def test_whether_kube_proxy_is_gone(name: str, replaced: dict[str, str], presence: Presence, kind: Kind) -> None:
    found = baremetal.verify(cluster(name, **replaced))
    assert (found.kube_proxy, found.replacement) == (presence, kind)
    assert found.reason


def test_names_that_only_sound_like_it_do_not_count() -> None:
    names = {one["metadata"]["name"] for one in objects("gke-baremetal")}
    assert {"kube-control-plane-metrics-proxy", "audit-proxy", "metallb-speaker"} <= names
    found = baremetal.verify(cluster("gke-baremetal"))
    assert any("ipMode VIP is right" in one.fact for one in found.evidence)


def test_metallb_by_its_own_manifests_is_known_too() -> None:
    speaker = objects("gke-baremetal")[6]
    speaker["metadata"]["name"] = "speaker"
    found = baremetal.verify(observed([*objects("k3s-cilium"), speaker]))
    assert any("ipMode VIP is right" in one.fact for one in found.evidence)


def test_a_daemonset_of_that_name_in_any_namespace_counts() -> None:
    extra = {"kind": "DaemonSet", "metadata": {"name": "kube-proxy", "namespace": "elsewhere"}, "spec": {}}
    found = baremetal.verify(observed([*objects("gke-baremetal"), extra]))
    assert (found.kube_proxy, found.reason) == (Presence.PRESENT, "DaemonSet elsewhere/kube-proxy runs it")


def test_what_must_not_be_seen_cannot_be_told() -> None:
    withheld = Withheld("forbidden")
    assert baremetal.verify(Observed(withheld)).kube_proxy is Presence.CANNOT_TELL
    whole = cluster("gke-baremetal")
    found = baremetal.verify(dataclasses.replace(whole, pods=withheld))
    assert (found.kube_proxy, found.replacement) == (Presence.CANNOT_TELL, Kind.GKE_DATAPLANE_V2)
