"""The running controller and the cluster's service proxy: seen, told, followed; by the holder of the Lease, and without rights."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests import data
from tests.controlplane.kube import Kube
from tests.data.applied import made
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match
from tests.harness import objects, pod
from tests.harness.controller import Controller
from tests.harness.stack import MANIFESTS, SETTLE, Stack

USER = "system:serviceaccount:kube-system:ccm-lb"
MISMATCH = "IPModeMismatch"

# A cloud whose health probes come from the load balancer's own address: with IPVS they are answered only if that is not on the nodes.
PROBING = "--cloud-provider=probing"
BACKEND = """
import dataclasses

from ccm_lb.backends.fakecloud import FakecloudBackend
from ccm_lb.ipmode import Delivery
from ccm_lb.objects import IPMode


class ProbingBackend(FakecloudBackend):
    def traffic(self, service):
        known = super().traffic(service)
        return dataclasses.replace(
            known, delivery=Delivery.UNKNOWN, probes_from_own_address=True, default=IPMode.VIP
        )
"""


@pytest.fixture
def probing(tmp_path: Path) -> pod.Mounts:
    """That cloud, to be installed beside a controller: `stack.controller(PROBING, mounts=probing)`."""
    folder = tmp_path / "installed"
    metadata = folder / "probing-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "probing_backend.py").write_text(BACKEND)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: probing\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[ccm_lb.backends]\nprobing = probing_backend:ProbingBackend\n")
    files = {f"/opt/probing/{file.relative_to(folder)}": file for file in folder.rglob("*") if file.is_file()}
    return pod.Mounts(files, {"PYTHONPATH": "/opt/probing"})


async def wait_shown(controller: Controller, **labels: str) -> None:
    """Wait until the metric has these labels."""
    shown = ""
    try:
        async with asyncio.timeout(SETTLE):
            while True:
                _, text = await controller.get("/metrics")
                found = re.search(r"^ccm_lb_service_proxy_info\{.*$", text, re.MULTILINE)
                shown = found[0] if found else "nothing"
                if all(f'{name}="{value}"' in shown for name, value in labels.items()):
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"after {SETTLE:g} s: {shown}\n{controller.last_words()}") from None


async def warnings(stack: Stack) -> list[tuple[str, int]]:
    """Message and count of each Warning of this kind."""
    found = await stack.kube.list("events", stack.namespace)
    return [(one["message"], one.get("count", 1)) for one in found if one["reason"] == MISMATCH]


async def writes(stack: Stack, since: int, names: Sequence[str]) -> list[str]:
    """The names of the Services that the controller wrote, once there are two for each; the audit log comes a little later."""
    found: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLE):
            while len(found) < 2 * len(names):
                await asyncio.sleep(0.1)
                found = [
                    one["objectRef"]["name"]
                    for one in stack.plane.audit_events(since)
                    if one["user"]["username"] == USER
                    and one["verb"] == "patch"
                    and one["objectRef"].get("name") in names
                ]
    return found


async def set_image(stack: Stack, name: str, image: str) -> None:
    """A new image, rolled out at once."""
    body = {"spec": {"template": {"spec": {"containers": [{"name": "cilium-agent", "image": image}]}}}}
    changed = await stack.kube.patch("apps/v1/daemonsets", name, body, "kube-system", kind="strategic")
    status = {"status": {"observedGeneration": changed["metadata"]["generation"], "updatedNumberScheduled": 2}}
    await stack.kube.patch("apps/v1/daemonsets", name, status, "kube-system", subresource="status")


@contextlib.asynccontextmanager
async def withheld(kube: Kube) -> AsyncIterator[None]:
    """The controller's account without the optional Role."""
    bindings = "rbac.authorization.k8s.io/v1/rolebindings"
    await kube.delete(bindings, "ccm-lb-service-proxy", "kube-system")
    try:
        yield
    finally:
        for document in yaml.safe_load_all((MANIFESTS / "components" / "service-proxy" / "rbac.yaml").read_text()):
            if document["kind"] == "RoleBinding" and document["metadata"]["name"] == "ccm-lb-service-proxy":
                await kube.apply(document)


@pytest.mark.scenario("B52")
@pytest.mark.scenario("B81")
async def test_what_arrives_is_shown_and_the_owners_of_services_that_it_ignores_are_warned(stack: Stack) -> None:
    async with stack.controller() as controller:
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await wait_shown(controller, kind="unknown", confidence="unknown")
        async with made(stack.kube, data.objects("cilium", VERSION="v1.18.0", REPLACEMENT="true")):
            await wait_shown(controller, kind="cilium", version="1.18.0", mode="", confidence="likely")
            kind, _, message = await stack.wait_event("web", MISMATCH)
            assert kind == "Warning"
            assert "is ignored by the cluster's service proxy, cilium 1.18.0" in message
            # A Service that comes later is told when it is published; nobody is told twice.
            await stack.create(objects.service("later", {"http": 18090}))
            await stack.wait_event("later", MISMATCH)
            await set_image(stack, "cilium", "quay.io/cilium/cilium:v1.18.1")
            await wait_shown(controller, kind="cilium", version="1.18.1")
            assert [count for _, count in await warnings(stack)] == [1, 1]
        await wait_shown(controller, kind="unknown")
        assert objects.ingress(await stack.get("web"))[0]["ipMode"] == "Proxy", "a status is never changed for it"


@pytest.mark.scenario("B56")
async def test_the_ip_mode_of_services_follows_kube_proxys_mode_and_is_proxy_while_both_run(
    stack: Stack, probing: pod.Mounts
) -> None:
    names = ("web", "old")

    async def published(mode: str) -> None:
        for name in names:
            await stack.wait(name, lambda one: [entry["ipMode"] for entry in objects.ingress(one)] == [mode])

    async def configure(mode: str) -> None:
        text = data.objects("kubeadm", MODE=mode)[0]["data"]
        await stack.kube.patch("configmaps", "kube-proxy", {"data": text}, "kube-system")

    async def roll(updated: int) -> None:
        found = await stack.kube.get("apps/v1/daemonsets", "kube-proxy", "kube-system")
        status = {"observedGeneration": found["metadata"]["generation"], "updatedNumberScheduled": updated}
        await stack.kube.patch(
            "apps/v1/daemonsets", "kube-proxy", {"status": status}, "kube-system", subresource="status"
        )

    async with (
        made(stack.kube, data.objects("kubeadm", MODE="iptables")),
        stack.controller(PROBING, mounts=probing) as controller,
    ):
        await controller.start_ready()
        for number, name in enumerate(names):
            await stack.create(objects.service(name, {"http": 18080 + number}))
        await published("VIP")
        position, before = stack.plane.audit_position(), await stack.cloud.mutations()
        await configure("ipvs")
        await published("Proxy")
        # Back again: as long as one node has not got the new template, IPVS runs somewhere.
        await roll(1)
        await configure("iptables")
        await wait_shown(controller, mode="iptables")
        assert await stack.cloud.mutations() == before
        await stack.create(objects.service("later", {"http": 18090}))
        assert objects.ingress(await stack.wait_served("later"))[0]["ipMode"] == "Proxy"
        assert {objects.ingress(await stack.get(name))[0]["ipMode"] for name in names} == {"Proxy"}
        before = await stack.cloud.mutations()
        await roll(2)
        await published("VIP")
        assert await stack.cloud.mutations() == before
        assert sorted(await writes(stack, position, names)) == sorted(2 * names), "one for each change and Service"


async def test_a_start_in_a_cluster_with_ipvs_publishes_proxy_at_once(stack: Stack, probing: pod.Mounts) -> None:
    async with (
        made(stack.kube, data.objects("kubeadm", MODE="ipvs")),
        stack.controller(PROBING, mounts=probing) as controller,
    ):
        await stack.create(objects.service("web"))
        await controller.start_ready()
        await stack.wait_served("web")
        chosen = await stack.wait_event("web", "IPModeChosen")
        assert chosen[2].startswith("ipMode Proxy for"), "not VIP first, which would cut off what waits for the address"


@pytest.mark.scenario("B51")
async def test_without_the_rights_it_works_says_so_once_and_does_not_ask_hot(
    stack: Stack, api_proxy: FaultProxy
) -> None:
    looks = Match(path="/(daemonsets|configmaps)")
    await stack.add_node("n1")
    async with (
        made(stack.kube, data.objects("cilium", VERSION="v1.18.0", REPLACEMENT="true")),
        withheld(stack.kube),
        stack.controller(kubeconfig=stack.through(api_proxy)) as controller,
    ):
        await controller.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await wait_shown(controller, kind="unknown")
        await api_proxy.wait_for(Match(path="/daemonsets"), 4)  # the watch, the look, and twice the watch again
        assert controller.logged("DaemonSets could not be looked at") == 1
        assert len(api_proxy.matching(looks)) <= 4 * 6, "each of five watches, and the look"
        assert await warnings(stack) == []
        await stack.delete("web")
        await stack.wait_gone("web")


async def test_of_two_replicas_the_holder_of_the_lease_warns(stack: Stack) -> None:
    flags = (
        "--leader-elect-lease-duration=300s",
        "--leader-elect-renew-deadline=250s",
        "--leader-elect-retry-period=1s",
    )
    async with stack.controller(*flags, name="first") as first, stack.controller(*flags, name="second") as second:
        await first.start_ready()
        await stack.create(objects.service("web"))
        await stack.wait_served("web")
        await second.start_ready()
        async with made(stack.kube, data.objects("cilium", VERSION="v1.18.0", REPLACEMENT="true")):
            for controller in (first, second):
                await wait_shown(controller, kind="cilium")
            await stack.wait_event("web", MISMATCH)
            assert [count for _, count in await warnings(stack)] == [1]
            # The next holder says what it finds: its predecessor may have ended before it did.
            await first.terminate()
            async with asyncio.timeout(SETTLE):
                while sum(count for _, count in await warnings(stack)) < 2:
                    await asyncio.sleep(0.05)
