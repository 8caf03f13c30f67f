"""The commands that ask a cluster, on a genuine one: what they print, as text and as JSON, and how they end."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from ccm_lb.commands.main import execute
from ccm_lb.objects import CLEANUP_FINALIZER
from tests import data
from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.data.applied import made
from tests.harness import objects

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, standard output and standard error of `ccm-lb dataplane ...` with the admin's kubeconfig."""

    async def typed(command: str, *arguments: str) -> tuple[int, str, str]:
        full = ["dataplane", command, *arguments, f"--kubeconfig={control_plane.kubeconfig}"]
        code = await asyncio.to_thread(execute, full)
        said = capsys.readouterr()
        return code, said.out, said.err

    return typed


@contextlib.asynccontextmanager
async def published(kube: Kube, namespace: str, *ingress: dict[str, str]) -> AsyncIterator[str]:
    """A Service that publishes these addresses, as NAMESPACE/NAME."""
    await kube.create("services", objects.service("web", {"http": 18080}), namespace)
    status = {"status": {"loadBalancer": {"ingress": list(ingress)}}}
    await kube.patch("services", "web", status, namespace, kind="merge", subresource="status")
    yield f"{namespace}/web"


SLICES = "discovery.k8s.io/v1/endpointslices"
PROXY = {"ip": "203.0.113.10", "ipMode": "Proxy"}


async def test_detect(run: Run, kube: Kube, namespace: str) -> None:
    code, out, _ = await run("detect")
    assert (code, out.splitlines()[0]) == (3, "unknown, because no kube-proxy and no replacement was found, but there are no nodes "
                                              "to run them yet")  # fmt: skip
    async with made(kube, data.objects("aks")):
        code, out, _ = await run("detect")
        assert (code, out.splitlines()[:2]) == (0, ["kube-proxy 1.32.6 (ipvs), certain", "  ipvs.scheduler: lc"])
        assert "  DaemonSet kube-system/kube-proxy: mode ipvs" in out.splitlines()
        code, out, _ = await run("detect", "--output=json")
        answer = json.loads(out)
        assert (code, answer["kind"], answer["settings"]["ipvs.tcpFinTimeout"]) == (0, "kube-proxy", "120s")


async def test_detect_does_not_end_well_for_a_mode_that_it_does_not_know(run: Run, kube: Kube, namespace: str) -> None:
    async with made(kube, data.objects("kubeadm", MODE="userspace")):
        code, out, _ = await run("detect")
        assert (code, out.splitlines()[0]) == (3, "kube-proxy 1.37.2 (unknown), likely")
        code, out, _ = await run("detect", "-o", "json")
        assert (code, json.loads(out)["mode"]) == (3, "unknown")


async def test_verify_as_json(run: Run, kube: Kube, namespace: str) -> None:
    async with made(kube, data.objects("gke-baremetal")):
        code, out, _ = await run("verify", "-o", "json")
        answer = json.loads(out)
        assert (code, answer["kubeProxy"], answer["replacement"]) == (0, "absent", "gke-dataplane-v2")


async def test_verify_says_when_nothing_is_in_its_place(run: Run, kube: Kube, namespace: str) -> None:
    async with made(kube, data.objects("cilium", VERSION="v1.18.1", REPLACEMENT="false")):
        code, out, _ = await run("verify")
    assert code == 1
    assert "in its place: none" in out
    code, out, _ = await run("verify")
    assert (code, "in its place: unknown" in out) == (3, True)


async def test_preflight(run: Run, kube: Kube, namespace: str) -> None:
    code, out, _ = await run("preflight")
    assert (code, out) == (3, "cannot tell: there are no nodes\n")
    async with made(kube, [one for one in data.objects("gke-baremetal") if one["kind"] == "Node"]):
        await kube.create("nodes", objects.node("silent", "192.0.2.12"))
        code, out, _ = await run("preflight")
        assert code == 3
        assert "silent: cannot tell: the node does not say what system it runs (nothing said)" in out
        code, out, _ = await run("preflight", "-o", "json")
        fitness = {one["node"]: one["fitness"] for one in json.loads(out)}
        assert fitness == {"bm-1": "fits", "silent": "cannot tell"}


async def test_explain(run: Run, kube: Kube, namespace: str) -> None:
    async with (
        made(kube, data.objects("kubeadm", MODE="iptables")),
        published(kube, namespace, PROXY, {"hostname": "lb.example.com"}) as service,
    ):
        code, out, _ = await run("explain", service)
        assert code == 0
        lines = out.splitlines()
        assert lines[0] == "service proxy: kube-proxy 1.37.2 (iptables)"
        assert lines[1] == (
            "the load balancer delivers to: a node's port (assumed: nothing in the cluster shows who serves it)"
        )
        assert lines[3].startswith(
            "203.0.113.10 (Proxy), a client on a node: through the load balancer: ipMode Proxy keeps"
        )
        assert lines[5].startswith("lb.example.com (no ipMode), a client outside: through the load balancer")
        code, out, _ = await run("explain", service, "--delivery=address")
        assert (code, "a client outside: not at all" in out) == (1, True)


METALLB = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "speaker", "namespace": "kube-system"},
    "spec": {"template": {"spec": {"containers": [{"name": "speaker", "image": "quay.io/metallb/speaker:v0.15.2"}]}}},
}


async def test_explain_takes_the_delivery_of_the_load_balancer_that_detect_finds(
    run: Run, kube: Kube, namespace: str
) -> None:
    async with (
        made(kube, [*data.objects("kubeadm", MODE="iptables"), METALLB]),
        published(kube, namespace, PROXY) as service,
    ):
        code, out, _ = await run("detect", "-o", "json")
        found = json.loads(out)["loadBalancers"]
        assert (code, [(one["name"], one["delivery"]) for one in found]) == (0, [("MetalLB", "address")])
        code, out, _ = await run("explain", service)
        where = "DaemonSet kube-system/speaker runs here, and the Service names no other"
        assert out.splitlines()[1] == f"the load balancer delivers to: the address itself (MetalLB serves it: {where})"
        assert (code, "a client outside: not at all" in out) == (1, True)
        code, out, _ = await run("explain", service, "--delivery=node-port", "-o", "json")
        assert (code, json.loads(out)["delivery"]) == (0, {"to": "node-port", "reason": "as told"})
        # Another controller's Service is not MetalLB's.
        await kube.patch("services", "web", {"metadata": {"finalizers": [CLEANUP_FINALIZER]}}, namespace)
        try:
            code, out, _ = await run("explain", service)
            assert (code, "a node's port (assumed: a cloud's controller serves it" in out) == (0, True)
        finally:
            await kube.patch("services", "web", {"metadata": {"finalizers": None}}, namespace, kind="merge")


async def test_explain_names_the_nodes_whose_own_clients_get_no_answer_with_ipvs_and_policy_local(
    run: Run, kube: Kube, namespace: str
) -> None:
    local = {"spec": {"externalTrafficPolicy": "Local"}}
    nodes = [objects.node(name, address) for name, address in (("n1", "192.0.2.11"), ("n2", "192.0.2.12"))]
    cluster = [one for one in data.objects("kubeadm", MODE="ipvs") if one["kind"] != "Node"]
    async with (
        made(kube, [*cluster, *({"apiVersion": "v1", "kind": "Node", **one} for one in nodes)]),
        published(kube, namespace, {**PROXY, "ipMode": "VIP"}) as service,
    ):
        await kube.patch("services", "web", local, namespace)
        code, out, _ = await run("explain", service)
        assert (code, "note: no ready endpoint" in out) == (1, True)
        await kube.create(SLICES, endpoint_slice("n1"), namespace)
        code, out, _ = await run("explain", service)
        assert code == 1
        assert "a client on a node with a ready pod of the Service (n1): straight to a pod" in out
        assert (
            "a client on a node without a ready pod of the Service (n2): not at all: with IPVS and policy Local" in out
        )
        assert "a client in a pod on a node without a ready pod of the Service (n2): straight to a pod" in out
        code, out, _ = await run("explain", service, "-o", "json")
        broken = [one for one in json.loads(out)["clients"] if one["path"] == "not at all"]
        assert [(one["client"], one["endpoints"], one["nodes"]) for one in broken] == [
            ("node", "without a ready pod of the Service", ["n2"])
        ]
        await kube.patch(SLICES, "web-1", {"endpoints": endpoint_slice("n1", "n2")["endpoints"]}, namespace)
        code, out, _ = await run("explain", service)
        assert (code, "without a ready pod of the Service (none at present): not at all" in out) == (0, True)


def endpoint_slice(*nodes: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [
            {"addresses": [f"10.244.{number}.2"], "nodeName": one, "conditions": {"ready": True}}
            for number, one in enumerate(nodes, start=1)
        ],
    }


async def test_explain_warns_and_does_not_guess(run: Run, kube: Kube, namespace: str) -> None:
    async with published(kube, namespace, PROXY) as service:
        async with made(kube, data.objects("cilium", VERSION="v1.18.0", REPLACEMENT="true")):
            code, out, _ = await run("explain", service, "-o", "json")
            answer: dict[str, Any] = json.loads(out)
            assert code == 1
            assert "is ignored by the cluster's service proxy, cilium 1.18.0" in answer["warnings"][0]
            paths = {one["client"]: one["path"] for one in answer["clients"]}
            assert paths == {
                "outside": "through the load balancer",
                "node": "straight to a pod",
                "pod": "straight to a pod",
            }
        code, out, _ = await run("explain", service)
        assert (code, "a client in a pod: unknown" in out) == (3, True)


@pytest.mark.parametrize("command", ["explain", "probe"])
async def test_a_service_that_is_none(command: str, run: Run, kube: Kube, namespace: str) -> None:
    code, _, err = await run(command, "web")
    assert (code, err) == (2, "ccm-lb: 'web': expected NAMESPACE/NAME of a Service\n")
    code, _, err = await run(command, f"{namespace}/web")
    assert (code, err) == (2, f"ccm-lb: there is no Service {namespace}/web\n")
    await kube.create("services", objects.service("web"), namespace)
    code, _, err = await run(command, f"{namespace}/web")
    assert code == 2
    assert "address" in err
    code, out, _ = await run(command, f"{namespace}/web", "-o", "json")
    assert (code, "address" in json.loads(out)["error"]) == (2, True)


async def test_probe_without_the_kernels_word_cannot_tell(run: Run, kube: Kube, namespace: str) -> None:
    # On loopback, where nobody listens: no other address is ever connected to.
    async with published(kube, namespace, {"ip": "127.89.0.1", "ipMode": "VIP"}) as service:
        code, out, _ = await run("probe", service)
        assert code == 3
        assert out.startswith("127.89.0.1:18080: cannot tell: no connection")
        code, out, _ = await run("probe", service, "-o", "json")
        assert json.loads(out)[0]["answer"] == "cannot tell"
