"""
What clients notice when the cluster autoscaler takes a node away: `python -m tests.bench.scaledown`, as root.

With the genuine kube-proxy and real packets, as tests/packets has them. Each way is a line: whom the cloud's health check asks, what it
does with connections through a target that is removed, and whether the node is taken out at the taint or stays until it is gone.
"""

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from tests.controlplane import build, recipes
from tests.controlplane.progress import Progress
from tests.controlplane.server import ControlPlane
from tests.harness.stack import apply_access
from tests.packets import scaledown, topology
from tests.packets.lab import Lab, running
from tests.packets.scaledown import KUBE_PROXY, NODE_PORT, Outcome

_COLUMNS = (
    "health check",
    "connections of a removed target",
    "node",
    "cut while it works",
    "new ones leave after",
    "begun after that",
    "at its end: failed, over 1 s",
)
_CUTS = 0.05  # seconds


class Way(NamedTuple):
    check: Mapping[str, Any]
    drain_seconds: float | None
    label: bool

    def __str__(self) -> str:
        asked = "kube-proxy" if self.check is KUBE_PROXY else "node port"
        fate = "go on" if self.drain_seconds is None else "are cut"
        return f"{asked} | {fate} | {'out at once' if self.label else 'stays'}"


def ways() -> Iterator[Way]:
    for check, drain_seconds, label in itertools.product((KUBE_PROXY, NODE_PORT), (None, _CUTS), (False, True)):
        yield Way(check, drain_seconds, label)


def shown(outcome: Outcome) -> str:
    left = "never" if outcome.left_after is None else f"{outcome.left_after:.1f} s"
    ends = f"{outcome.failed}, {outcome.slow} of {outcome.asked}"
    return f"{outcome.cut} of {outcome.through} | {left} | {outcome.late} | {ends}"


@click.command()
@click.option("--mode", type=click.Choice(["nftables", "iptables"]), default="nftables", help="kube-proxy's")
@click.option("--leaving", default=20.0, show_default=True, help="seconds from the taint to the machine's end")
def main(*, mode: str, leaving: float) -> None:
    """Print what users get in each way."""
    if os.geteuid() != 0:
        raise click.ClickException("network namespaces need root")
    binaries = build.ensure_binaries([*recipes.CONTROL_PLANE, "kube-proxy"], recipes.default_kube_version(), Progress())
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        asyncio.run(measure(binaries, mode, leaving, Path(directory)))


async def measure(binaries: dict[str, Path], mode: str, leaving: float, directory: Path) -> None:
    networks = ",".join(topology.SERVICE_NETWORKS)
    flags = [f"--service-cluster-ip-range={networks}"]
    async with ControlPlane(binaries, directory=directory / "controlplane", apiserver_flags=flags) as plane:
        async with plane.kube() as kube:
            await apply_access(kube)
        kubeconfig = await plane.service_account_kubeconfig("kube-system", "ccm-lb")
        async with (
            running(mode, plane, binaries["kube-proxy"], kubeconfig, directory) as lab,
            scaledown.draining_controller(lab, kubeconfig, directory),
        ):
            click.echo(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, kube-proxy in mode {mode}\n")
            click.echo(f"| {' | '.join(_COLUMNS)} |\n{'| --- ' * len(_COLUMNS)}|")
            for way in ways():
                click.echo(f"| {way} | {shown(await play(lab, way, leaving))} |")


async def play(lab: Lab, way: Way, leaving: float) -> Outcome:
    async with lab.service("Proxy", pods=("server2",), loadBalancerClass=scaledown.CLASS) as served:
        await scaledown.ready(served, drain_seconds=way.drain_seconds, check=way.check)
        return await scaledown.scaled_down(served, label=way.label, leaving=leaving)


if __name__ == "__main__":
    main()
