"""Service proxies found on a genuine API server, by those who may look and by those who may not."""

import pytest

from ccm_lb.dataplane.clients import mismatch
from ccm_lb.dataplane.cluster import detect, infer
from ccm_lb.dataplane.model import Kind, Mode
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import RecordedEvents
from tests import data
from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.data.applied import made
from tests.harness.detectors import Watching, account, connected, grant

# ---- what there is


@pytest.mark.parametrize(
    ("name", "replaced", "sentence"),
    [
        ("kubeadm", {"MODE": "ipvs"}, "kube-proxy 1.37.2 (ipvs)"),
        ("eks", {}, "kube-proxy 1.31.2-minimal-eksbuild.3 (iptables)"),
        ("gke-classic", {}, "kube-proxy 1.29.1-gke.1589020 (iptables)"),
        ("gke-baremetal", {}, "gke-dataplane-v2"),
        ("k3s", {}, "kube-proxy 1.33.3+k3s1 (ipvs)"),
        ("k3s-cilium", {}, "cilium 1.17.6"),
        ("calico-ebpf", {}, "calico-ebpf 3.30.2"),
    ],
)
async def test_what_there_is_on_the_server_is_what_is_found(
    name: str, replaced: dict[str, str], sentence: str, control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    async with made(kube, data.objects(name, **replaced)), connected(control_plane.kubeconfig) as api:
        found = await detect.service_proxy(api)
        assert found.sentence() == sentence
        # The server's answers and the files say the same.
        assert found.kind is infer.service_proxy(data.cluster(name, **replaced)).kind


async def test_a_cluster_with_nothing_in_it_is_unknown(control_plane: ControlPlane, kube: Kube, namespace: str) -> None:
    async with connected(control_plane.kubeconfig) as api:
        assert "no nodes to run them yet" in (await detect.service_proxy(api)).sentence()


# ---- rights


async def test_without_rights_it_is_unknown_because(control_plane: ControlPlane, kube: Kube, namespace: str) -> None:
    async with (
        made(kube, data.objects("kubeadm", MODE="ipvs")),
        account(control_plane, kube, granted=False) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        found = await detect.service_proxy(api)
    assert found.kind is Kind.UNKNOWN
    assert "because DaemonSets could not be looked at" in found.sentence()
    assert 'cannot list resource "daemonsets"' in found.reason


async def test_the_rights_of_the_controller_are_enough(control_plane: ControlPlane, kube: Kube, namespace: str) -> None:
    async with (
        made(kube, data.objects("kubeadm", MODE="ipvs")),
        account(control_plane, kube, granted=True) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        found = await detect.service_proxy(api, everywhere=False, pods=False)
    assert (found.kind, found.mode) == (Kind.KUBE_PROXY, Mode.IPVS)


@pytest.mark.scenario("B51")
async def test_a_config_map_that_is_forbidden_leaves_the_mode_unknown(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    items = data.objects("kubeadm", MODE="ipvs")
    items[0]["metadata"]["name"] = items[1]["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"] = "kp-hidden"
    async with (
        made(kube, items),
        account(control_plane, kube, granted=True) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        found = await detect.service_proxy(api, everywhere=False, pods=False)
    assert (found.kind, found.mode) == (Kind.KUBE_PROXY, Mode.UNKNOWN)
    assert any("forbidden" in one.fact for one in found.evidence)


async def test_rights_that_come_later_are_noticed(control_plane: ControlPlane, kube: Kube, namespace: str) -> None:
    async with (
        made(kube, data.objects("kubeadm", MODE="ipvs")),
        account(control_plane, kube, granted=False) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        watching = Watching(api, period=1.0)
        async with watching.running():
            await watching.wait(lambda one: "could not be looked at (" in one.reason)
            await grant(kube, kubeconfig.name.removeprefix("kubeconfig-kube-system-").rpartition("-")[0])
            await watching.wait(lambda one: one.mode is Mode.IPVS)


# ---- Services


@pytest.mark.scenario("B81")
@pytest.mark.parametrize(
    ("version", "warnings"), [("v1.16.5", 1), ("v1.17.6", 0), ("v1.18.0", 1), ("v1.18.1", 0), ("latest", 0)]
)
async def test_a_published_mode_that_is_ignored_is_warned_of_once(
    version: str, warnings: int, control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    ingress = [{"ip": "203.0.113.10", "ipMode": "Proxy"}]
    service = builders.service({"status": {"loadBalancer": {"ingress": ingress}}})
    events = RecordedEvents()
    advice = mismatch.ServiceAdvice(events, lambda: [service])
    async with (
        made(kube, data.objects("cilium", VERSION=version, REPLACEMENT="true")),
        connected(control_plane.kubeconfig) as api,
    ):
        found = await detect.service_proxy(api)
    advice.proxy_changed(found, None)
    advice.proxy_changed(found, found)
    advice.served(service)
    assert events.reasons() == ["IPModeMismatch"] * warnings
