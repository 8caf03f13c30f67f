"""
How long until 1,000 Services have their addresses? `python -m tests.bench [--services N]`.

The Services wait at the API server before a controller starts; what is measured is the time from its start to the last address,
its CPU time and its peak memory. The Go service controller plays the same scene in the same run, so that the numbers can be compared
on whatever machine this is. Nothing here fails because a machine is slow.
"""

import asyncio
import dataclasses
import os
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.bench.contestants import Contestant, ccm_lb, environment_of, upstream
from tests.controlplane import build, recipes
from tests.controlplane.kube import Kube
from tests.controlplane.progress import Progress
from tests.controlplane.server import ControlPlane
from tests.harness import objects
from tests.harness.cloud import Fakecloud

LIMIT = 600.0  # seconds after which a run is given up
FINALIZER_OFF = {"metadata": {"finalizers": None}}


@dataclasses.dataclass(frozen=True)
class Result:
    """Seconds, seconds, MiB."""

    name: str
    took: float
    cpu: float
    memory: float


@click.command()
@click.option("--services", default=1000, show_default=True, help="how many Services wait at the start")
@click.option("--rounds", default=1, show_default=True, help="how often each controller plays")
def main(*, services: int, rounds: int) -> None:
    """Print the time to address of ccm-lb and of the Go service controller, in one run."""
    binaries = build.ensure_binaries([*recipes.CONTROL_PLANE, "peer"], recipes.default_kube_version(), Progress())
    asyncio.run(run(binaries, services, rounds))


async def run(binaries: dict[str, Path], count: int, rounds: int) -> None:
    console = Console(highlight=False, width=110)
    async with AsyncExitStack() as resources:
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        plane = await resources.enter_async_context(ControlPlane(binaries, directory=directory / "controlplane"))
        kube = await resources.enter_async_context(plane.kube())
        cloud = await resources.enter_async_context(Fakecloud(directory, pool="127.84.0.0/16"))
        contestants = [
            upstream("Go, its defaults (1 worker, 20 requests/s)", binaries["peer"], plane.kubeconfig),
            upstream(
                *("Go, 64 workers, no limit", binaries["peer"], plane.kubeconfig),
                *("--concurrent-service-syncs=64", "--kube-api-qps=100000", "--kube-api-burst=100000"),
            ),
            ccm_lb("ccm-lb, its defaults", plane.kubeconfig, "--cloud-provider=instant"),
            ccm_lb(
                *("ccm-lb with fakecloud over HTTP", plane.kubeconfig, "--cloud-provider=fakecloud"),
                *(f"--cloud-config={cloud.config()}", "--allow-addresses=loopback"),
            ),
        ]
        console.print(
            f"{count} Services waiting at the start, {os.cpu_count()} cores; time until the last has its address"
        )
        table = Table("controller", "time s", "CPU s", "peak MiB")
        for _ in range(rounds):
            for contestant in contestants:
                console.print(f"  {contestant.name} ...")
                result = await play(contestant, kube, count, directory)
                table.add_row(result.name, f"{result.took:.1f}", f"{result.cpu:.1f}", f"{result.memory:.0f}")
        console.print(table)


async def play(contestant: Contestant, kube: Kube, count: int, directory: Path) -> Result:
    """One controller, from its start to the last address, on a fresh set of Services."""
    await _each(count, lambda n: kube.create("services", objects.service(f"s{n}", {"http": 20000 + n}), "default"))
    addressed: set[str] = set()
    done = asyncio.create_task(_watch(kube, addressed, count))
    began = time.monotonic()
    log = (directory / "contestant.log").open("wb")
    process = subprocess.Popen(contestant.command, env=environment_of(contestant), stdout=log, stderr=log)  # noqa: ASYNC220
    try:
        async with asyncio.timeout(LIMIT):
            while not done.done():
                if process.poll() is not None:
                    raise click.ClickException(
                        f"{contestant.name} ended: {(directory / 'contestant.log').read_text()[-2000:]}"
                    )
                await asyncio.wait({done}, timeout=0.2)
        took = time.monotonic() - began
        cpu, memory = _usage(process.pid)
    finally:
        done.cancel()
        process.kill()
        process.wait()
        log.close()
        await _each(count, lambda n: _remove(kube, f"s{n}"))
    return Result(contestant.name, took, cpu, memory)


async def _watch(kube: Kube, addressed: set[str], count: int) -> None:
    while len(addressed) < count:
        async for event in kube.watch("services", "default", fieldSelector="spec.type=LoadBalancer"):
            if objects.ingress(event["object"]):
                addressed.add(event["object"]["metadata"]["name"])
                if len(addressed) >= count:
                    return


async def _remove(kube: Kube, name: str) -> None:
    await kube.patch("services", name, FINALIZER_OFF, "default", kind="merge")
    await kube.delete("services", name, "default")


async def _each(count: int, call: Callable[[int], Awaitable[object]]) -> None:
    slots = asyncio.Semaphore(50)

    async def one(n: int) -> None:
        async with slots:
            await call(n)

    await asyncio.gather(*(one(n) for n in range(count)))


def _usage(pid: int) -> tuple[float, float]:
    """CPU seconds and peak resident MiB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return ticks / os.sysconf("SC_CLK_TCK"), int(peak) / 1024


if __name__ == "__main__":
    main()
