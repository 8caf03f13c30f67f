"""Upstream's tests in both deliveries. ROLLING=1 plays the rolling updates of ten minutes as well, FOCUS=TEXT those with it alone."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.cluster import deployed
from tests.cluster.cloud import RoutersCloud
from tests.cluster.cluster import Cluster
from tests.e2e import page
from tests.e2e.specs import NEEDS_DIRECT, ROLLING, Runner, bare
from tests.harness.fixtures import built


@pytest.mark.parametrize("delivery", page.DELIVERIES)
async def test_kubernetes_own_tests_of_load_balancers_pass(cluster: Cluster, delivery: str, tmp_path: Path) -> None:
    programs = built(["e2e.test", "kubectl"])
    results = page.RESULTS / f"logs-{delivery}"
    shutil.rmtree(results, ignore_errors=True)
    runner = Runner(programs["e2e.test"], programs["kubectl"], cluster.plane.kubeconfig, cluster.client, results)
    chosen = [
        name
        for name in await runner.listed()
        if os.environ.get("FOCUS", "") in bare(name)
        and (ROLLING not in name or os.environ.get("ROLLING"))
        and (NEEDS_DIRECT not in name or delivery == "direct")
    ]
    assert chosen, "e2e.test knows none of that name"
    (folder := tmp_path / "cloud").mkdir()
    async with RoutersCloud(cluster.router, folder, f"--delivery={delivery}") as cloud:
        with deployed.production(cluster, cloud, tmp_path / "checkout"):
            page.keep(delivery, outcomes := await runner.play(chosen))
            await _emptied(cloud)
    assert [f"{bare(one.name)}: {one.said}" for one in outcomes if one.verdict == "failed"] == []
    assert any(one.verdict == "passed" for one in outcomes)


async def _emptied(cloud: RoutersCloud) -> None:
    """Until nothing of the tests is left; the last namespaces are on their way out when e2e.test ends."""
    seen: list[str] = []
    try:
        async with asyncio.timeout(120.0):
            while seen := [one["name"] for one in await cloud.load_balancers()]:
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"left behind: {seen}") from None
