"""
What clients of a load balancer notice when the cluster autoscaler takes a node away.

Its order: the taint, some time for the pods to leave, the end of the machine. The pods have left already here, so that a connection
through the node has its pod on the other one, and is lost by the load balancer's doing or with the machine, for no other reason.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.harness.controller import Controller
from tests.packets.clients import Answer, Held, UnservedError, ask
from tests.packets.lab import Lab, Served, healthy
from tests.packets.rows import OUTSIDE
from tests.packets.topology import LAN, NODES, lan_addresses

TAINT: Final = "ToBeDeletedByClusterAutoscaler"
EXCLUDE: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
GOING: Final = "node1"
HELD: Final = 20  # long-lived connections, about half of them through each node
CLASS: Final = "lab.test/drained"  # of Services whose controller has the cloud ask kube-proxy
KUBE_PROXY: Final[Mapping[str, Any]] = {"protocol": "http", "port": 10256, "path": "/healthz"}
NODE_PORT: Final[Mapping[str, Any]] = {"protocol": "tcp"}
_SLOW = 1.0  # seconds for a new connection and its answer; a usual one takes milliseconds


@dataclasses.dataclass
class Outcome:
    """
    `through` long-lived connections passed the node at the taint; `cut` of them broke while it still worked.

    `left_after` is when the last new connection passed the node, in seconds after the taint, None if they went on until its end.
    `late` connections were begun through it three health checks and more after the taint, and so were lost with the machine.
    `failed` and `slow` are new connections at and after the machine's end, out of `asked`.
    """

    through: int = 0
    cut: int = 0
    left_after: float | None = None
    late: int = 0
    asked: int = 0
    failed: int = 0
    slow: int = 0


async def scaled_down(served: Served, *, label: bool, leaving: float = 20.0, gone: float = 8.0) -> Outcome:
    """
    Taint the node, wait `leaving` seconds for pods to leave, end its machine, look for `gone` seconds more, and put all back.

    With `label` the node also gets the label that takes it out of the load balancer at once.
    """
    lab, address = served.lab, await served.address()
    outcome = Outcome()
    async with contextlib.AsyncExitStack() as stack:
        held = await _held_through_the_node(stack, lab, address)
        outcome.through = len(held)
        await stack.enter_async_context(tainted(lab, label=label))
        began, last, settled = time.monotonic(), 0.0, 6.0
        while (now := time.monotonic() - began) < leaving:
            held, cut = await _still_held(held)
            outcome.cut += cut
            if _through_node(await ask(lab.hosts[OUTSIDE], address, 80)):
                last = now
                outcome.late += now > settled
            await asyncio.sleep(0.02)
        outcome.left_after = last if last < settled else None
        with machine_gone(lab):
            await _new_connections(lab, address, gone, outcome)
    return outcome


async def _held_through_the_node(stack: contextlib.AsyncExitStack, lab: Lab, address: str) -> list[Held]:
    found = [await stack.enter_async_context(Held(lab.hosts[OUTSIDE], address, 80)) for _ in range(HELD)]
    return [one for one in found if _through_node(await one.ask())]


async def _still_held(held: list[Held]) -> tuple[list[Held], int]:
    answers = await asyncio.gather(*(one.ask() for one in held), return_exceptions=True)
    alive = [one for one, answer in zip(held, answers, strict=True) if isinstance(answer, Answer)]
    return alive, len(held) - len(alive)


async def _new_connections(lab: Lab, address: str, seconds: float, outcome: Outcome) -> None:
    until = time.monotonic() + seconds
    while (began := time.monotonic()) < until:
        outcome.asked += 1
        try:
            await ask(lab.hosts[OUTSIDE], address, 80, patience=5.0)
            outcome.slow += time.monotonic() - began > _SLOW
        except UnservedError:
            outcome.failed += 1
        await asyncio.sleep(0.02)


def _through_node(answer: Answer) -> bool:
    """A pod on the other node sees the address of the node that sent the connection on."""
    return answer.peer in lan_addresses(GOING)


@contextlib.asynccontextmanager
async def draining_controller(lab: Lab, kubeconfig: Path, directory: Path) -> AsyncIterator[None]:
    """A controller for `CLASS` beside the lab's, with the setting that makes the cloud ask kube-proxy."""
    flags = ("--handle-unclassed=false", f"--load-balancer-class={CLASS}", "--leader-elect-resource-name=drained")
    config = lab.clouds["balancer"].config(askKubeProxy=True)
    async with Controller(
        directory, kubeconfig, config, "--leader-elect=false", *flags, name=f"drained-{lab.mode}"
    ) as controller:
        await controller.start_ready()
        yield


@contextlib.asynccontextmanager
async def tainted(lab: Lab, *, label: bool = False) -> AsyncIterator[None]:
    """The autoscaler's taint inside the block; with `label`, out of all load balancers at once."""
    taint = {"key": TAINT, "value": str(int(time.time())), "effect": "NoSchedule"}
    await lab.kube.patch(
        "nodes",
        GOING,
        {"metadata": {"labels": {EXCLUDE: "true" if label else None}}, "spec": {"taints": [taint]}},
        kind="merge",
    )
    try:
        yield
    finally:
        await lab.kube.patch(
            "nodes", GOING, {"metadata": {"labels": {EXCLUDE: None}}, "spec": {"taints": None}}, kind="merge"
        )


@contextlib.contextmanager
def machine_gone(lab: Lab) -> Iterator[None]:
    """The node's cable is pulled inside the block: nobody answers, and nobody says so."""
    lab.hosts[LAN].run("ip", "link", "set", GOING, "down")
    try:
        yield
    finally:
        lab.hosts[LAN].run("ip", "link", "set", GOING, "up")


async def ready(served: Served, *, drain_seconds: float | None, check: Mapping[str, Any] | None = None) -> None:
    """
    Both nodes are well, and the cloud cuts what passes a removed target after `drain_seconds` (None: never).

    `check` is a health check in place of the controller's.
    """
    await served.configure(drainTimeoutSeconds=drain_seconds, **({"healthCheck": dict(check)} if check else {}))
    await served.wait_balancer(lambda one: healthy(one) == dict.fromkeys(NODES, True))
