"""Plays random sequences to both sides and holds the end against the promises of the Kubernetes API."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from collections.abc import Sequence as Many
from pathlib import Path

from tests.controlplane.kube import KubeError
from tests.parity import observe, play, sequences, sides, steps
from tests.parity.quick import BASE
from tests.parity.sequences import Item, Move, Sequence, Shared
from tests.parity.shrink import shrink
from tests.parity.sides import Side

BATCH = 60  # sequences that share nodes and restarts


@dataclasses.dataclass(frozen=True)
class End:
    """Where one side came to."""

    faults: tuple[str, ...]
    services: tuple[str, ...]
    cloud: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A sequence and where both sides came to."""

    sequence: Sequence
    theirs: End
    ours: End

    @property
    def failed(self) -> bool:
        """Ours is wrong, or both are right and not the same."""
        return bool(self.ours.faults) or (not self.theirs.faults and self.theirs != self.ours)

    def __str__(self) -> str:
        moves = "; ".join(str(item) for item in self.sequence.items())
        return f"{self.sequence.name}: {moves}\n    theirs {self.theirs}\n    ours   {self.ours}"


Both = tuple[Side, Side]


@contextlib.asynccontextmanager
async def both(binaries: Mapping[str, Path], directory: Path) -> AsyncIterator[Both]:
    """Two sides with small retry delays."""
    async with contextlib.AsyncExitStack() as stack:
        making = (
            stack.enter_async_context(sides.running(kind, binaries, directory, quick=True, flags=sides.DUAL_STACK))
            for kind in play.KINDS
        )
        theirs, ours = await asyncio.gather(*making)
        yield theirs, ours


async def played(pair: Both, many: Many[Sequence]) -> list[Outcome]:
    """Play sequences that share what is `Shared`, together."""
    theirs, ours = await asyncio.gather(*(_on_side(side, many) for side in pair))
    return [Outcome(one, theirs[one.name], ours[one.name]) for one in many]


async def shortened(pair: Both, outcome: Outcome) -> Outcome:
    """The shortest sequence found that fails as well, played alone; the given outcome if it does not fail alone."""
    number = 0
    shortest = outcome

    async def fails(items: Many[Item]) -> bool:
        nonlocal number, shortest
        number += 1
        (one,) = await played(pair, [sequences.alone(f"{outcome.sequence.name}-{number}", items)])
        if one.failed:
            shortest = one
        return one.failed

    if await fails(outcome.sequence.items()):
        await shrink(outcome.sequence.items(), fails)
    return shortest


async def _on_side(side: Side, many: Many[Sequence]) -> dict[str, End]:
    await steps.reset_nodes(side)
    namespaces = {one.name: f"random-{one.name}" for one in many}
    for namespace in namespaces.values():
        await side.kube.create("namespaces", {"metadata": {"name": namespace}})
    for number in range(max(len(one.rounds) for one in many)):
        rounds = {one.name: one.rounds[number] for one in many if number < len(one.rounds)}
        shared = next((item for items in rounds.values() for item in items if isinstance(item, Shared)), None)
        away = shared is not None and shared.kind == sequences.RESTART
        if away:
            await side.barrier()
            await side.stop()
        elif shared is not None:
            await _take(side, sequences.OF_NODES[shared.kind], "")
        await asyncio.gather(*(_moves(side, namespaces[name], items) for name, items in rounds.items()))
        if away:
            side.start()
            # What comes next is not to happen while it is still away.
            await side.barrier()
    await side.at_rest(list(namespaces.values()), retry=BASE)
    ends = {name: await _end(side, namespace) for name, namespace in namespaces.items()}
    await asyncio.gather(*(side.clear(namespace) for namespace in namespaces.values()))
    return ends


async def _moves(side: Side, namespace: str, items: Many[Item]) -> None:
    for item in items:
        if isinstance(item, Move):
            await _take(side, sequences.OF_SERVICES[item.kind](item.name), namespace)
            await asyncio.sleep(item.pause)  # part of the sequence, not a wait for something


async def _take(side: Side, step: steps.Step, namespace: str) -> None:
    with contextlib.suppress(KubeError):  # what the API server refuses did not happen, on either side
        await step.act(side, namespace)


async def _end(side: Side, namespace: str) -> End:
    services = await side.kube.list("services", namespace)
    texts = sorted(f"{one['metadata']['name']}: {observe.service_text(one)}" for one in services)
    have = [observe.balancer_text(one.name, 0, one.service, one.nodes) for _, one in side.cloud.of(namespace)]
    return End(tuple(await play.faults(side, namespace)), tuple(texts), tuple(sorted(have)))
