"""
How long until 1,000 Services have their addresses? `python -m tests.bench [--services N] [--only NAME]`.

The Services wait at the API server before a controller starts; what is measured is the time from its start to the last address,
its CPU time and its peak memory. The Go service controller plays the same scene in the same run, so that the numbers can be compared
on whatever machine this is. Nothing here fails because a machine is slow.

What it is doing goes to stderr with the time since the start; each result goes to stdout as it comes.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import click

from tests.bench import contestants
from tests.bench.contestants import CATALOGUE, Contestant, environment_of
from tests.bench.narration import Narration, Result
from tests.controlplane import build, recipes
from tests.controlplane.kube import Kube
from tests.controlplane.progress import Progress
from tests.controlplane.server import ControlPlane
from tests.harness import objects
from tests.harness.cloud import Fakecloud

LIMIT = 600.0  # seconds after which a run is given up
FINALIZER_OFF = {"metadata": {"finalizers": None}}


@click.command()
@click.option("--services", default=1000, show_default=True, help="how many Services wait at the start")
@click.option("--rounds", default=1, show_default=True, help="how often each contestant plays")
@click.option("--only", multiple=True, metavar="NAME", help="only this contestant; may be repeated")
@click.option("--list", "listed", is_flag=True, help="name the contestants and end")
@click.option("--output", type=click.Choice(["text", "json"]), default="text", help="json: one object a line")
def main(*, services: int, rounds: int, only: Sequence[str], listed: bool, output: str) -> None:
    """Print the time to address of ccm-lb and of the Go service controller, in one run."""
    if listed:
        _list(output)
        return
    if wrong := contestants.unknown(only):
        raise click.BadParameter(wrong, param_hint="--only")
    chosen = [name for name in CATALOGUE if name in only or not only]
    narration = Narration(sys.stderr, sys.stdout, as_json=output == "json")
    narration.step("looking for the binaries, which are built if they are missing")
    wanted = [*recipes.CONTROL_PLANE, *(["peer"] if any(map(contestants.needs_peer, chosen)) else [])]
    binaries = build.ensure_binaries(wanted, recipes.default_kube_version(), Progress())
    asyncio.run(run(binaries, chosen, services, rounds, narration))


def _list(output: str) -> None:
    if output == "json":
        click.echo(json.dumps(CATALOGUE, indent=2))
        return
    width = max(map(len, CATALOGUE))
    click.echo("\n".join(f"{name.ljust(width)}  {what}" for name, what in CATALOGUE.items()))


async def run(binaries: dict[str, Path], chosen: Sequence[str], count: int, rounds: int, narration: Narration) -> None:
    async with AsyncExitStack() as resources:
        directory = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        narration.step("starting etcd and kube-apiserver")
        plane = await resources.enter_async_context(ControlPlane(binaries, directory=directory / "controlplane"))
        kube = await resources.enter_async_context(plane.kube())
        config: Path | None = None
        if any(map(contestants.needs_fakecloud, chosen)):
            narration.step("starting fakecloud")
            cloud = await resources.enter_async_context(Fakecloud(directory, pool="127.84.0.0/16"))
            config = cloud.config()
        narration.step(f"{count} Services wait at the start, {os.cpu_count()} cores")
        for _ in range(rounds):
            for name in chosen:
                contestant = contestants.made(name, plane.kubeconfig, peer=binaries.get("peer"), cloud_config=config)
                narration.result(await play(contestant, kube, count, directory, narration))


async def play(contestant: Contestant, kube: Kube, count: int, directory: Path, narration: Narration) -> Result:
    """One controller, from its start to the last address, on a fresh set of Services."""
    narration.step(f"{contestant.name}: creating {count} Services")
    await _each(count, lambda n: kube.create("services", objects.service(f"s{n}", {"http": 20000 + n}), "default"))
    addressed: set[str] = set()
    done = asyncio.create_task(_watch(kube, addressed, count))
    narration.step(f"{contestant.name}: starting the controller")
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
                narration.progress(f"{contestant.name}: {len(addressed)} of {count} Services have their address")
                await asyncio.wait({done}, timeout=0.2)
        took = time.monotonic() - began
        cpu, memory = _usage(process.pid)
    finally:
        done.cancel()
        process.kill()
        process.wait()
        log.close()
        narration.step(f"{contestant.name}: removing the Services")
        await _each(count, lambda n: _remove(kube, f"s{n}"))
    return Result(contestant.name, CATALOGUE[contestant.name], count, took, cpu, memory)


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
