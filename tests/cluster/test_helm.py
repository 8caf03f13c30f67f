"""The chart: installed, upgraded under traffic, and uninstalled, in the cluster."""

import asyncio
import json
from pathlib import Path

from tests.cluster import steady
from tests.cluster.cloud import RoutersCloud
from tests.cluster.cluster import Cluster
from tests.cluster.deployed import NAMESPACE, Deployed
from tests.controlplane.kube import Kube
from tests.harness.fixtures import built
from tests.manifests.rendering import CHART


async def test_the_chart_is_installed_upgraded_under_traffic_and_uninstalled(
    cluster: Cluster, cloud: RoutersCloud, kube: Kube, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    settings = {"url": cloud.url, "token": cloud.token}
    values.write_text(json.dumps({"config": {"cloud-provider": "fakecloud"}, "cloudConfig": settings}))

    def helm(*arguments: str) -> str:
        where = [f"--namespace={NAMESPACE}", "--wait", "--timeout=120s"]
        return cluster.run([str(built(["helm"])["helm"]), *arguments, *where])

    deployed = Deployed(cluster, "lb")
    await asyncio.to_thread(helm, "install", "lb", str(CHART), f"--values={values}")
    before = {one["metadata"]["name"] for one in deployed.pods()}
    assert len(before) == 2
    async with steady.going_on(cluster, kube, cloud) as going_on:
        values.write_text(
            json.dumps({"config": {"cloud-provider": "fakecloud", "log-format": "json"}, "cloudConfig": settings})
        )
        await asyncio.to_thread(helm, "upgrade", "lb", str(CHART), f"--values={values}")
        await asyncio.to_thread(deployed.wait_rolled_out)
        assert before.isdisjoint(one["metadata"]["name"] for one in deployed.pods()), (
            "changed settings replace the pods"
        )
        await going_on.wait_served(2)
    await asyncio.to_thread(helm, "uninstall", "lb")
    for kind in ("deployment", "role", "rolebinding", "secret", "serviceaccount", "poddisruptionbudget"):
        left = cluster.kubectl(f"--namespace={NAMESPACE}", "get", kind, "--output=name").split()
        assert [one for one in left if one.endswith(("/lb", "/ccm-lb"))] == []
