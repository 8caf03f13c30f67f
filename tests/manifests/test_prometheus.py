"""A genuine Prometheus scrapes the running controller: its alert fires on a real failure, and the dashboard has data."""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests.controlplane.process import Process
from tests.controlplane.server import free_ports
from tests.harness import objects
from tests.harness.stack import Stack
from tests.manifests.rendering import MANIFESTS

Json = dict[str, Any]

COMPONENTS = MANIFESTS / "components"
SETTLE = 90.0


class Prometheus:
    """One server, and what it says."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url, self._session = url, session

    async def query(self, expression: str) -> list[Json]:
        """The series that the expression has now."""
        async with self._session.get(f"{self._url}/api/v1/query", params={"query": expression}) as answer:
            body = await answer.json()
            assert body["status"] == "success", f"{expression}: {body}"
            found: list[Json] = body["data"]["result"]
            return found

    async def firing(self) -> set[str]:
        async with self._session.get(f"{self._url}/api/v1/alerts") as answer:
            alerts = (await answer.json())["data"]["alerts"]
            return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}


@contextlib.asynccontextmanager
async def scraping(port: int, folder: Path) -> AsyncIterator[Prometheus]:
    """Prometheus with our rules, impatient: it looks each second, and an alert need not last."""
    rules = yaml.safe_load((COMPONENTS / "alerts" / "prometheusrule.yaml").read_text())["spec"]
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = "2s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "ccm-lb", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    (own,) = free_ports(1)
    program = shutil.which("prometheus")
    assert program is not None
    command = [
        program,
        *(f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'tsdb'}"),
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    process = Process("prometheus", command, folder / "prometheus.log")
    process.start()
    try:
        async with aiohttp.ClientSession() as session:
            prometheus = Prometheus(f"http://127.0.0.1:{own}", session)
            async with asyncio.timeout(SETTLE):
                while True:
                    assert process.pid is not None, process.last_words()
                    with contextlib.suppress(aiohttp.ClientError):
                        if await prometheus.query("ccm_lb_build_info"):
                            break
                    await asyncio.sleep(0.1)
            yield prometheus
    finally:
        await process.stop()


async def eventually(wanted: Any, ask: Any) -> None:
    seen = None
    try:
        async with asyncio.timeout(SETTLE):
            while not wanted(seen := await ask()):
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"after {SETTLE:g} s: {seen}") from None


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Prometheus: apt-get install prometheus")
async def test_it_sees_a_failure_wakes_somebody_and_fills_the_dashboard(stack: Stack, tmp_path: Path) -> None:
    folder = tmp_path / "prometheus"
    folder.mkdir()
    async with stack.controller() as controller:
        await controller.start_ready()
        async with scraping(controller.port, folder) as prometheus:
            await stack.add_node("n1")
            await stack.create(objects.service("good"))
            await stack.wait_served("good")
            fault = await stack.cloud.fault(
                "status", match={"methods": ["POST"], "path": "/v1/load-balancers"}, status=400
            )
            await stack.create(objects.service("bad", {"http": 18081}))
            await stack.wait_event("bad", "SyncLoadBalancerFailed")
            await eventually(lambda seen: "CcmLbServicesFailing" in seen, prometheus.firing)
            served = await prometheus.query('ccm_lb_services{state="served"}')
            assert [one["value"][1] for one in served] == ["1"]
            dashboard = json.loads((COMPONENTS / "dashboard" / "dashboard.json").read_text())
            for panel in dashboard["panels"]:
                for target in panel["targets"]:
                    # A rate needs two samples of a series that began with the failure.
                    await eventually(bool, lambda expression=target["expr"]: prometheus.query(expression))
            await stack.cloud.mend(fault)
            await stack.patch("bad", {"metadata": {"annotations": {"try": "again"}}})
            await stack.wait_served("bad")
            await eventually(lambda seen: "CcmLbServicesFailing" not in seen, prometheus.firing)
