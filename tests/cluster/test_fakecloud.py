"""The overlay for trying things out, applied as its page says: the cloud in the cluster, both replicas, traffic from everywhere."""

import json
from collections.abc import Iterator

import pytest

from tests.cluster import workloads
from tests.cluster.cluster import POOL, Cluster
from tests.cluster.deployed import MANIFESTS, Deployed
from tests.controlplane.kube import Kube
from tests.harness import objects
from tests.packets.clients import ask


@pytest.fixture(scope="module")
def overlay(cluster: Cluster) -> Iterator[Deployed]:
    """Applied, and taken away again."""
    deployed = Deployed(cluster)
    cluster.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "fakecloud"))
    deployed.wait_rolled_out()
    cluster.kubectl("--namespace=kube-system", "rollout", "status", "deployment/fakecloud", "--timeout=120s")
    [fakecloud] = deployed.pods("app.kubernetes.io/name=fakecloud")
    # The pool is a network that clients route to the node that runs fakecloud.
    cluster.router.run("ip", "route", "replace", POOL, "via", fakecloud["status"]["hostIP"])
    yield deployed
    cluster.kubectl("delete", "services", "--namespace=default", "--selector=app=web", "--timeout=60s")
    cluster.kubectl("delete", "-k", str(MANIFESTS / "overlays" / "fakecloud"), "--timeout=60s")
    cluster.router.run("ip", "route", "delete", POOL)


async def test_both_replicas_are_ready_and_a_service_is_served_to_outside_nodes_and_pods(
    cluster: Cluster, overlay: Deployed, kube: Kube
) -> None:
    pods = overlay.pods()
    assert [one["status"]["containerStatuses"][0]["ready"] for one in pods] == [True, True]
    assert [one["status"]["containerStatuses"][0]["restartCount"] for one in pods] == [0, 0]
    cluster.kubectl("apply", "-f", "-", text=json.dumps(workloads.service("web")))
    served = await kube.wait_for("services", "web", objects.ingress, workloads.NAMESPACE)
    [entry] = objects.ingress(served)
    assert entry["ipMode"] == "Proxy"
    await workloads.first_answer(cluster.client, entry["ip"])
    for host in (cluster.client, *cluster.nodes.values()):
        answer = await ask(host, entry["ip"], workloads.PORT)
        assert answer.pod in cluster.nodes, f"asked from {host.host}"
    assert workloads.ask_from_pod(cluster, entry["ip"])["pod"] in cluster.nodes


async def test_the_service_proxy_is_told_from_what_kubeadm_lays_out(cluster: Cluster, overlay: Deployed) -> None:
    proxy = await overlay.metric("ccm_lb_service_proxy_info")
    assert 'kind="kube-proxy"' in proxy
    assert 'mode="nftables"' in proxy
    assert f'version="{cluster.version}"' in proxy
