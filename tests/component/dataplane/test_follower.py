"""What the running controller makes of the service proxy: which ipModes follow it, who is warned, and that nothing depends on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import pytest

from ccm_lb.controller.publish import Policy
from ccm_lb.dataplane import versions
from ccm_lb.dataplane.clients import follower
from ccm_lb.dataplane.clients.follower import ServiceProxyFollower
from ccm_lb.dataplane.clients.mismatch import ServiceAdvice
from ccm_lb.dataplane.model import Confidence, Kind, Mode, ServiceProxy, unknown
from ccm_lb.errors import TerminalError
from ccm_lb.ipmode import Delivery, Traffic
from ccm_lb.objects import IPMode, Key, Service
from ccm_lb.testing import builders
from tests.component.world import ENSURED, ENSURING, UID, World, settle

pytestmark = pytest.mark.looptime

IP = "203.0.113.1"
PROBING = Traffic(Delivery.UNKNOWN, probes_from_own_address=True)
PLAIN = Traffic(Delivery.UNKNOWN)
FOLLOWS = "Normal IPModeChosen ipMode Proxy for 203.0.113.1: with VIP and IPVS the address sits on every node"


def kube_proxy(mode: Mode, *, rolling: bool = False, version: str = "1.37.2") -> ServiceProxy:
    return ServiceProxy(Kind.KUBE_PROXY, Confidence.LIKELY, mode, versions.parse(version), rolling=rolling)


def cilium(version: str) -> ServiceProxy:
    return ServiceProxy(Kind.CILIUM, Confidence.LIKELY, version=versions.parse(version))


class Cluster(World):
    """A world with a service proxy that changes at will; load balancers probe from their own address, and VIP is the default."""

    def __init__(self, traffic: Traffic = PROBING, default: IPMode = IPMode.VIP) -> None:
        self.shown: list[ServiceProxy] = []
        super().__init__()
        self.cloud.traffic, self.cloud.ip_mode = traffic, default

    def start_process(self) -> None:
        self.previous: ServiceProxy | None = None
        self.follower = ServiceProxyFollower(
            ServiceAdvice(self.events, lambda: self.state.services),
            lambda: self.fence.holds(),
            self.shown.append,
            lambda: self.state.nodes(),
        )
        self.policy, self.advice = (
            Policy(service_proxy=self.follower.hint, proxy_versions=self.follower.versions),
            self.follower,
        )
        super().start_process()

    def finds(self, proxy: ServiceProxy) -> None:
        """As the detector tells a change."""
        self.follower(proxy, self.previous)
        self.controller.service_proxy_changed()
        self.previous = proxy

    def service_named(self, name: str) -> builders.Json:
        number = int(name.rpartition("-")[2])
        return builders.service_json(builders.named(name), builders.uid(f"5e7f1c3a-0000-4000-8000-{number:012}"))

    def status_writes(self) -> list[Any]:
        return [patch["status"]["loadBalancer"]["ingress"] for patch in self.api.patches if "status" in patch]


# ---- the ipMode follows


@pytest.mark.scenario("B56")
async def test_the_ip_mode_follows_the_service_proxy_with_one_write_and_nothing_changed_in_the_cloud() -> None:
    cluster = Cluster()
    cluster.finds(kube_proxy(Mode.IPTABLES))
    async with cluster.working():
        await cluster.served()
        assert cluster.ingress == [{"ip": IP, "ipMode": "VIP"}]
        cluster.finds(kube_proxy(Mode.IPVS))
        await settle(1)
        assert cluster.status_writes() == [[{"ip": IP, "ipMode": "Proxy"}]]
        assert cluster.cloud.mutations == []
        lines = cluster.events.lines()
        assert lines[:2] == [ENSURING, ENSURED]
        assert lines[2].startswith(FOLLOWS)


@pytest.mark.scenario("B56")
async def test_while_both_modes_run_it_is_proxy() -> None:
    cluster = Cluster()
    cluster.finds(kube_proxy(Mode.IPVS))
    async with cluster.working():
        await cluster.served()
        assert cluster.ingress[0]["ipMode"] == "Proxy"
        cluster.finds(kube_proxy(Mode.IPTABLES, rolling=True))
        await settle(1)
        assert cluster.status_writes() == []
        cluster.finds(kube_proxy(Mode.IPTABLES))
        await settle(1)
        assert cluster.status_writes() == [[{"ip": IP, "ipMode": "VIP"}]]


@pytest.mark.scenario("B56")
async def test_many_services_follow_little_by_little_and_soon() -> None:
    cluster = Cluster()
    cluster.finds(kube_proxy(Mode.IPTABLES))
    names = [f"web-{number}" for number in range(40)]
    async with cluster.working():
        cluster.add_nodes()
        for name in names:
            cluster.api.create(cluster.service_named(name))
        await settle(5)
        cluster.forget_history()
        cluster.finds(kube_proxy(Mode.IPVS))
        await settle(1.95)
        assert len(cluster.status_writes()) == 20, "ten in a second"
        await settle(2)
        modes = [(cluster.api.object(Key("lb", name)) or {})["status"]["loadBalancer"]["ingress"] for name in names]
        assert {entry["ipMode"] for (entry,) in modes} == {"Proxy"}
        assert len(cluster.status_writes()) == len(names)


@pytest.mark.parametrize(
    ("traffic", "annotation"),
    [
        pytest.param(Traffic(Delivery.KEPT), None, id="the destination is kept"),
        pytest.param(PLAIN, None, id="the probes come from elsewhere"),
        pytest.param(PROBING, "Proxy", id="the user decided"),
    ],
)
async def test_a_service_that_it_makes_no_difference_to_is_left_alone(traffic: Traffic, annotation: str | None) -> None:
    cluster = Cluster(traffic)
    cluster.finds(kube_proxy(Mode.IPTABLES))
    async with cluster.working():
        cluster.add_nodes()
        cluster.create(builders.annotated("ccm-lb.dev/ip-mode", annotation))
        await settle(5)
        cluster.forget_history()
        cluster.finds(kube_proxy(Mode.IPVS))
        await settle(1)
        assert (cluster.events.all, cluster.api.patches, cluster.cloud.calls) == ([], [], [])


async def test_a_mode_that_the_user_insists_on_stays_and_the_warning_is_given() -> None:
    cluster = Cluster()
    cluster.finds(kube_proxy(Mode.IPTABLES))
    async with cluster.working():
        cluster.add_nodes()
        cluster.create(builders.annotated("ccm-lb.dev/ip-mode", "VIP"))
        await settle(5)
        cluster.forget_history()
        cluster.finds(kube_proxy(Mode.IPVS))
        await settle(1)
        assert cluster.ingress[0]["ipMode"] == "VIP"
        assert "Warning IPModeConflict" in cluster.events.lines()[-1]
        assert cluster.status_writes() == []


async def test_a_change_while_a_service_is_worked_on_is_not_lost() -> None:
    cluster = Cluster()
    cluster.finds(kube_proxy(Mode.IPTABLES))
    async with cluster.working():
        cluster.add_nodes()
        patched = asyncio.Event()
        cluster.api.script.then("patch_service_status", None, patched)  # the finalizer at once, the status later
        cluster.create()
        await settle(1)
        assert len(cluster.status_writes()) == 1, "decided, and under way"
        cluster.finds(kube_proxy(Mode.IPVS))
        await settle(1)
        patched.set()
        await settle(1)
        assert cluster.ingress == [{"ip": IP, "ipMode": "Proxy"}]


async def test_a_service_in_a_backoff_is_not_tried_earlier() -> None:
    cluster = Cluster()
    async with cluster.working():
        cluster.add_nodes()
        cluster.cloud.script.then("ensure", TerminalError("no"))
        cluster.create()
        await settle(1)
        cluster.forget_history()
        cluster.finds(kube_proxy(Mode.IPVS))
        await settle(100)
        assert cluster.cloud.calls == []


async def test_a_service_under_deletion_is_cleaned_up_whatever_the_service_proxy() -> None:
    cluster = Cluster()
    cluster.finds(kube_proxy(Mode.IPTABLES))
    async with cluster.working():
        cluster.add_nodes()
        cluster.create(builders.finalizers("example.com/guard"))
        await settle(5)
        cluster.delete()
        await settle(5)
        cluster.forget_history()
        for mode in (Mode.IPVS, Mode.IPTABLES, Mode.IPVS):
            cluster.finds(kube_proxy(mode))
            await settle(1)
        assert cluster.cloud.calls == []
        assert cluster.finalizers == ["example.com/guard"]


async def test_a_replica_without_the_lease_reevaluates_nothing_and_warns_nobody_until_it_leads() -> None:
    cluster = Cluster(PLAIN, IPMode.PROXY)
    cluster.fence.held = False
    cluster.add_nodes()
    cluster.create(builders.finalizers(), builders.published({"ip": IP, "ipMode": "Proxy"}))
    cluster.finds(cilium("1.18.0"))
    await settle(60)
    assert (cluster.events.all, cluster.api.patches, cluster.cloud.calls) == ([], [], [])
    assert cluster.shown == [cilium("1.18.0")], "every replica's metric shows it"
    cluster.fence.held = True
    cluster.follower.take_over()
    assert cluster.events.reasons() == ["IPModeMismatch"]


# ---- Warnings


async def test_the_owner_of_a_service_whose_mode_is_ignored_is_warned_once_it_is_published() -> None:
    cluster = Cluster(PLAIN, IPMode.PROXY)
    cluster.finds(cilium("1.18.0"))
    async with cluster.working():
        await cluster.served()
        cluster.edit(builders.port(81))
        await settle(1)
        assert "IPModeMismatch" not in cluster.events.reasons(), "it was said when the address was published"
        cluster.edit(builders.annotated("ccm-lb.dev/ip-mode", "VIP"))
        await settle(1)
        cluster.edit(builders.annotated("ccm-lb.dev/ip-mode", None))
        await settle(1)
        assert cluster.events.lines()[-1].startswith(
            f"Warning IPModeMismatch ipMode Proxy of {IP} is ignored by the cluster's service proxy, cilium 1.18.0"
        )


async def test_what_was_published_before_the_proxy_changed_is_warned_of_when_it_does() -> None:
    cluster = Cluster(PLAIN, IPMode.PROXY)
    cluster.finds(cilium("1.17.6"))
    async with cluster.working():
        await cluster.served()
        cluster.finds(cilium("1.18.0"))
        cluster.finds(unknown("forbidden"))
        assert cluster.events.reasons() == ["IPModeMismatch"]


async def test_the_version_that_a_workload_shows_goes_before_what_nodes_say() -> None:
    old = {"status": {"nodeInfo": {"kubeProxyVersion": "v1.28.9"}}}
    cluster = Cluster(PLAIN, IPMode.PROXY)
    cluster.finds(kube_proxy(Mode.IPTABLES))
    cluster.api.create(builders.node_json("n1", old))
    cluster.api.create(builders.node_json("n2", {"metadata": {"labels": {"kubernetes.io/os": "windows"}}}, old))
    cluster.state.take_over()
    cluster.create()
    await cluster.reconcile()
    [message] = [one.message for one in cluster.events.all if one.reason == "IPModeIgnored"]
    assert "[n2]" in message, "a DaemonSet for Linux says nothing of Windows"


# ---- nothing depends on it


class Broken:
    """A detector that fails, and then works."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.runs: list[float] = []

    async def run(self) -> None:
        self.runs.append(asyncio.get_running_loop().time())
        if self.failures:
            raise self.failures.pop(0)
        await asyncio.Event().wait()


async def test_a_failure_that_nobody_thought_of_is_logged_and_the_look_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    detector = Broken(KeyError("metadata"), ExceptionGroup("two", [ValueError("x"), KeyError("y")]))
    began = asyncio.get_running_loop().time()
    with caplog.at_level(logging.ERROR):
        task = asyncio.create_task(follower.keep(detector))
        await settle(1000)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert [round(at - began) for at in detector.runs] == [0, 60, 120]
    assert [one.getMessage() for one in caplog.records] == ["the look at the service proxy failed and begins anew"] * 2


class Seen:
    """What is told of Services: the published modes of each that was synced, the UID of each that is gone."""

    def __init__(self) -> None:
        self.served_modes: list[list[str]] = []
        self.gone: list[str] = []

    def served(self, service: Service) -> None:
        self.served_modes.append([str(one.ip_mode) for one in service.status.load_balancer.ingress])

    def forget(self, uid: str) -> None:
        self.gone.append(uid)


class Watched(World):
    def start_process(self) -> None:
        self.advice = self.seen = Seen()
        super().start_process()


async def test_a_service_is_looked_at_as_it_is_published_also_when_nothing_had_to_be_written() -> None:
    world = Watched()
    async with world.working():
        await world.served()
        assert world.seen.served_modes == [["Proxy"]]
        world.state.unsync(builders.service())
        await world.reconcile()
        assert world.api.patches == []
        assert world.seen.served_modes == [["Proxy"], ["Proxy"]]


@pytest.mark.parametrize("how", ["deleted", "vanished"])
async def test_a_service_that_is_gone_is_forgotten(how: str) -> None:
    world = Watched()
    async with world.working():
        await world.served()
        (world.delete if how == "deleted" else world.vanish)()
        await settle(5)
        assert set(world.seen.gone) == {UID}
