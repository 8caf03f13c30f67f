"""Dashboards and alerts made for the Go controller find their metrics here."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.parity import divergences, metrics, sides, steps


@pytest.mark.timeout(300)
async def test_every_metric_of_the_peer_is_here_or_has_its_row(binaries: dict[str, Path], tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        making = (stack.enter_async_context(sides.running(kind, binaries, tmp_path)) for kind in ("go", "ccm"))
        theirs, ours = await asyncio.gather(*(_scraped(side) for side in await asyncio.gather(*making)))
    assert "service_controller_nodesync_latency_seconds" in theirs
    listed = [name for name, _ in divergences.cells(divergences.read(), divergences.METRICS)]
    found = list(metrics.missing(theirs, ours))
    about = {name: (theirs.get(name), ours.get(name)) for name in set(found) ^ set(listed)}
    assert not about, f"not listed, or listed and not so: {about}"
    assert listed == sorted(set(listed))


async def _scraped(side: sides.Side) -> dict[str, metrics.Family]:
    """After something of everything: a Service made, changed and gone, a failure, nodes."""
    await steps.reset_nodes(side)
    await side.kube.create("namespaces", {"metadata": {"name": "m"}})
    for step in (steps.script("ensure", "error: boom"), steps.create(), steps.join("n4"), steps.leave("n4")):
        await step.act(side, "m")
        await side.at_rest(["m", ""])
    side.cloud.script("update", "m", "s", ["error: boom"])
    await steps.join("n4").act(side, "m")
    await steps.delete().act(side, "m")
    await side.at_rest(["m", ""])
    return dict(metrics.families(await side.metrics()))
