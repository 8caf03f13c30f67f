"""
The main job, live: `python -m tests.demo [--once]`.

A genuine kube-apiserver and etcd, fakecloud and the controller as processes of their own, and Services whose load balancers carry
real traffic. A cluster of the user's is never touched: the demo makes its own and knows no other.
"""

import asyncio
import os
import shutil
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from tests.controlplane import build, recipes
from tests.controlplane.progress import Progress
from tests.controlplane.server import ControlPlane
from tests.demo.scene import Scene
from tests.harness.backends import NodePorts
from tests.harness.cloud import Fakecloud
from tests.harness.stack import Stack, apply_access

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "build" / "demo"
ONCE_LIMIT = 100.0  # seconds after which a Service that has not answered is a failure


@click.command()
@click.option("--once", is_flag=True, help="prove the traffic and the clean-up, print a summary, exit 0 or 1")
def main(*, once: bool) -> None:
    """Run a cluster with a cloud and show Services getting their load balancers."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    try:
        binaries = build.ensure_binaries(recipes.CONTROL_PLANE, recipes.default_kube_version(), Progress())
    except recipes.BuildError as error:
        raise click.ClickException(str(error)) from None
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    DIRECTORY.mkdir(parents=True)
    sys.exit(asyncio.run(run(binaries, console, once=once)))


async def run(binaries: dict[str, Path], console: Console, *, once: bool) -> int:
    """The whole demo; the exit code."""
    ending = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    began = time.monotonic()
    async with AsyncExitStack() as resources:
        console.print("starting etcd, kube-apiserver and fakecloud ...")
        plane = await resources.enter_async_context(ControlPlane(binaries, directory=DIRECTORY / "controlplane"))
        cloud = await resources.enter_async_context(Fakecloud(DIRECTORY, pool="127.84.0.0/24"))
        kube = await resources.enter_async_context(plane.kube())
        await apply_access(kube)
        node_ports = await resources.enter_async_context(NodePorts())
        account = await plane.service_account_kubeconfig("kube-system", "ccm-lb")
        stack = Stack(plane, kube, "default", cloud, node_ports, DIRECTORY, account, network="127.85.0")
        shutil.copy(plane.kubeconfig, DIRECTORY / "kubeconfig")
        console.print("starting the controller ...")
        controller = await resources.enter_async_context(stack.controller())
        await controller.start_ready()
        scene = Scene(stack)
        scene.began = began
        async with scene.going_on():
            await scene.set_up()
            if once:
                return await prove(scene, console)
            await show(scene, stack, console, ending)
            console.print("\ncleaning up ...")
            await scene.tear_down()
    return 0


async def prove(scene: Scene, console: Console) -> int:
    """Every port answers, and after the deletion nothing is left; the summary says so."""
    try:
        async with asyncio.timeout(ONCE_LIMIT):
            while not scene.complete():
                await asyncio.sleep(0.1)
    except TimeoutError:
        console.print(table(scene))
        console.print(f"[red]FAILED[/]: not every Service answered within {ONCE_LIMIT:g} s; the logs are in build/demo")
        return 1
    console.print(table(scene))
    try:
        await scene.tear_down()
    except (AssertionError, TimeoutError) as error:
        console.print(f"[red]FAILED[/]: the clean-up left something behind: {error}")
        return 1
    console.print(
        f"first answered request after {scene.first_answer:.1f} s; all Services answered; after their deletion nothing is left"
    )
    return 0


async def show(scene: Scene, stack: Stack, console: Console, ending: asyncio.Event) -> None:
    """The live table until Ctrl-C; where there is no terminal, once complete and then silence."""
    if not console.is_terminal:
        while not scene.complete() and not ending.is_set():
            await asyncio.sleep(0.1)
        console.print(table(scene))
        console.print(hints(stack, scene))
        await ending.wait()
        return
    console.print(hints(stack, scene))
    with Live(table(scene), console=console, auto_refresh=False) as live:
        while not ending.is_set():
            live.update(table(scene), refresh=True)
            await asyncio.sleep(0.5)


def table(scene: Scene) -> Table:
    """What is known of each Service's port now."""
    shown = Table("Service", "address", "ipMode", "port", "targets", "healthy", "answered", "last answer from")
    for row in scene.rows:
        answered = f"{row.traffic.answered}/{row.traffic.asked}"
        shown.add_row(
            row.service, row.address, row.ip_mode, str(row.port), row.targets, row.health, answered, row.traffic.last
        )
    return shown


def hints(stack: Stack, scene: Scene) -> str:
    """What to try next, to be copied."""
    kubeconfig = os.path.relpath(DIRECTORY / "kubeconfig")
    address = next((row.address for row in scene.rows if row.service == "proxy"), "ADDRESS")
    return "\n".join(
        [
            "try, in another terminal:",
            f"  curl http://{address}:18080/",
            f"  kubectl --kubeconfig {kubeconfig} get services -o wide",
            f"  kubectl --kubeconfig {kubeconfig} describe service proxy",
            f"  FAKECLOUD_URL={stack.cloud.url} FAKECLOUD_TOKEN={stack.cloud.token} .venv/bin/fakecloud lb list",
            "Ctrl-C ends it.",
        ]
    )


if __name__ == "__main__":
    main()
