"""Service proxies found on a genuine API server, by those who may look and by those who may not."""

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ccm_lb import kube as connecting
from ccm_lb.dataplane import advise, detect, infer
from ccm_lb.dataplane.detect import ServiceProxyDetector
from ccm_lb.dataplane.model import Kind, Mode, ServiceProxy
from ccm_lb.kubeapi import KubeApi
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import RecordedEvents
from tests import data
from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.data.applied import made
from tests.harness.stack import SETTLE, apply_access

ROLE = "ccm-lb-service-proxy"
NOTICED = 10.0  # seconds after a change, as promised


@contextlib.asynccontextmanager
async def connected(kubeconfig: Path) -> AsyncIterator[KubeApi]:
    api = await connecting.connect(kubeconfig, None, user_agent="ccm-lb-tests")
    try:
        yield api
    finally:
        await api.close()


@contextlib.asynccontextmanager
async def account(plane: ControlPlane, kube: Kube, *, granted: bool) -> AsyncIterator[Path]:
    """A kubeconfig of a new ServiceAccount, with the controller's rights on nodes and, if granted, those of the manifests' `ROLE`."""
    name = f"looker-{secrets.token_hex(4)}"
    await kube.create("serviceaccounts", {"metadata": {"name": name}}, "kube-system")
    nodes = {"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]}
    await kube.create("rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": name}, **nodes})
    await kube.create(
        "rbac.authorization.k8s.io/v1/clusterrolebindings",
        {"metadata": {"name": name}, **binding("ClusterRole", name, name)},
    )
    if granted:
        await grant(kube, name)
    yield await plane.service_account_kubeconfig("kube-system", name)
    await kube.delete("rbac.authorization.k8s.io/v1/rolebindings", name, "kube-system")


async def grant(kube: Kube, name: str) -> None:
    await apply_access(kube)
    body = {"metadata": {"name": name}, **binding("Role", ROLE, name)}
    await kube.create("rbac.authorization.k8s.io/v1/rolebindings", body, "kube-system")


def binding(kind: str, role: str, name: str) -> data.Json:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}],
    }


class Watching:
    """A detector that runs, and what it told."""

    def __init__(self, api: KubeApi, period: float = detect.PERIOD) -> None:
        self.told: list[tuple[ServiceProxy, ServiceProxy | None]] = []
        self.detector = ServiceProxyDetector(api, [self._tell], period=period)

    def _tell(self, proxy: ServiceProxy, previous: ServiceProxy | None) -> None:
        self.told.append((proxy, previous))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.detector.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def wait(self, until: Callable[[ServiceProxy], object], timeout: float = SETTLE) -> ServiceProxy:
        try:
            async with asyncio.timeout(timeout):
                while not until(self.detector.current):
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"after {timeout:g} s: {self.detector.current}") from None
        return self.detector.current


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


# ---- changes


@pytest.mark.scenario("B56")
async def test_a_mode_that_changes_is_noticed(control_plane: ControlPlane, kube: Kube, namespace: str) -> None:
    items = data.objects("kubeadm", MODE="iptables")
    async with (
        made(kube, items),
        account(control_plane, kube, granted=True) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        watching = Watching(api)
        async with watching.running():
            await watching.wait(lambda one: one.mode is Mode.IPTABLES)
            text = data.objects("kubeadm", MODE="ipvs")[0]["data"]
            await kube.patch("configmaps", "kube-proxy", {"data": text}, "kube-system")
            await watching.wait(lambda one: one.mode is Mode.IPVS)
            # The roll-out of the pods: the safe answer is that both modes may run.
            status = {"status": {"observedGeneration": 1, "updatedNumberScheduled": 1}}
            await kube.patch("apps/v1/daemonsets", "kube-proxy", status, "kube-system", subresource="status")
            await watching.wait(lambda one: one.rolling)
        modes = [(proxy.mode, proxy.rolling) for proxy, _ in watching.told]
        assert modes == [(Mode.IPTABLES, False), (Mode.IPVS, False), (Mode.IPVS, True)]
        assert watching.told[0][1] is None
        assert watching.told[1][1] is watching.told[0][0]


async def test_a_change_is_noticed_within_ten_seconds(control_plane: ControlPlane, kube: Kube, namespace: str) -> None:
    async with (
        made(kube, data.objects("kubeadm", MODE="iptables")),
        account(control_plane, kube, granted=True) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        watching = Watching(api)
        async with watching.running():
            await watching.wait(lambda one: one.mode is Mode.IPTABLES)
            took = []
            # Three times: a busy machine may be held up for seconds by something else.
            for mode in (Mode.IPVS, Mode.NFTABLES, Mode.IPTABLES):
                began = time.monotonic()
                text = data.objects("kubeadm", MODE=mode)[0]["data"]
                await kube.patch("configmaps", "kube-proxy", {"data": text}, "kube-system")
                await watching.wait(lambda one, mode=mode: one.mode is mode)  # type: ignore[misc]
                took.append(time.monotonic() - began)
            assert min(took) < NOTICED, took


@pytest.mark.scenario("B55")
async def test_the_arrival_of_kube_proxy_and_the_removal_of_anetd_are_noticed(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    async with (
        made(kube, data.objects("gke-baremetal")),
        account(control_plane, kube, granted=True) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        watching = Watching(api)
        async with watching.running():
            await watching.wait(lambda one: one.kind is Kind.GKE_DATAPLANE_V2)
            proxies = [one for one in data.objects("kubeadm", MODE="iptables") if one["kind"] != "Node"]
            async with made(kube, proxies):
                found = await watching.wait(lambda one: "both claim" in one.reason)
                assert found.kind is Kind.UNKNOWN
                await kube.delete("apps/v1/daemonsets", "anetd", "kube-system", grace=0)
                await watching.wait(lambda one: one.kind is Kind.KUBE_PROXY)


async def test_changes_that_say_nothing_new_are_not_looked_at(
    control_plane: ControlPlane, kube: Kube, namespace: str
) -> None:
    async with (
        made(kube, data.objects("gke-baremetal")),
        account(control_plane, kube, granted=True) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        watching = Watching(api)
        async with watching.running():
            await watching.wait(lambda one: one.kind is Kind.GKE_DATAPLANE_V2)
            position = control_plane.audit_position()
            await kube.patch("apps/v1/daemonsets", "localpv", {"metadata": {"labels": {"a": "b"}}}, "kube-system")
            for ready in (1, 2):
                status = {"status": {"numberReady": ready}}
                await kube.patch("apps/v1/daemonsets", "anetd", status, "kube-system", subresource="status")
            await asyncio.sleep(2 * detect.DEBOUNCE)
            lists = [
                one
                for one in control_plane.audit_events(position)
                if "looker-" in one["user"]["username"] and one["verb"] == "list"
            ]
    assert lists == []


async def test_a_server_that_goes_away_changes_nothing(control_plane: ControlPlane, kube: Kube, namespace: str) -> None:
    async with (
        made(kube, data.objects("kubeadm", MODE="iptables")),
        account(control_plane, kube, granted=True) as kubeconfig,
        connected(kubeconfig) as api,
    ):
        watching = Watching(api)
        async with watching.running():
            await watching.wait(lambda one: one.mode is Mode.IPTABLES)
            await control_plane.restart_apiserver()
            text = data.objects("kubeadm", MODE="nftables")[0]["data"]
            await kube.patch("configmaps", "kube-proxy", {"data": text}, "kube-system")
            await watching.wait(lambda one: one.mode is Mode.NFTABLES)
        assert [proxy.mode for proxy, _ in watching.told] == [Mode.IPTABLES, Mode.NFTABLES]


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
    advice = advise.ServiceAdvice(events, lambda: [service])
    async with (
        made(kube, data.objects("cilium", VERSION=version, REPLACEMENT="true")),
        connected(control_plane.kubeconfig) as api,
    ):
        found = await detect.service_proxy(api)
    advice.proxy_changed(found, None)
    advice.proxy_changed(found, found)
    advice.served(service)
    assert events.reasons() == ["IPModeMismatch"] * warnings
