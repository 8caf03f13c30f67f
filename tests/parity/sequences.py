"""
Random sequences, made from a seed; pure.

Many are played at once: each has Services and cloud faults of its own, and all share what happens to the nodes and the restarts, which
come between rounds. A `Sequence` holds both, so that it can be played again alone.
"""

import dataclasses
import random
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Steps
from typing import Final

from tests.parity import steps
from tests.parity.steps import FOREIGN_CLASS, Step

NAMES: Final = ("a", "b", "c")
ROUNDS: Final = 6
PAUSES: Final = (0.0, 0.0, 0.1, 0.3, 0.8)  # seconds
RESTART: Final = "restart"


@dataclasses.dataclass(frozen=True)
class Move:
    """One step of a sequence: which of `OF_SERVICES`, to which Service, and the pause after it in seconds."""

    kind: str
    name: str
    pause: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" ({self.pause:g} s)" if self.pause else "")


@dataclasses.dataclass(frozen=True)
class Shared:
    """What happens to all: one of `OF_NODES`, or a restart, during which the next moves up to the next `Shared` are made."""

    kind: str

    def __str__(self) -> str:
        return f"<{self.kind}>"


Item = Move | Shared


@dataclasses.dataclass(frozen=True)
class Sequence:
    """`name` says from which seed it is and which of that seed's; `rounds` all begin with what is shared, and may be empty."""

    name: str
    rounds: tuple[tuple[Item, ...], ...]

    def items(self) -> list[Item]:
        return [item for one in self.rounds for item in one]


def _spec(**fields: object) -> Callable[[str], Step]:
    return lambda name: steps.spec(name, **fields)


def _script(verb: str, *outcomes: str) -> Callable[[str], Step]:
    return lambda name: steps.script(verb, *outcomes, name=name)


def _become(kind: str, **more: object) -> Callable[[str], Step]:
    return lambda name: steps.become(kind, name, **more)


OF_SERVICES: Final[Mapping[str, Callable[[str], Step]]] = {
    "create": steps.create,
    "create with a class": lambda name: steps.create(name, loadBalancerClass=FOREIGN_CLASS),
    "create dual-stack": lambda name: steps.create(name, ipFamilyPolicy="PreferDualStack"),
    "delete": steps.delete,
    "port 80": _spec(ports=steps.ports(http=80)),
    "port 81": _spec(ports=steps.ports(http=81)),
    "two ports": _spec(ports=steps.ports(http=80, b=90)),
    "UDP": _spec(ports=steps.ports("UDP", http=80)),
    "ClusterIP": _become("ClusterIP"),
    "NodePort": _become("NodePort"),
    "LoadBalancer": _become("LoadBalancer"),
    "LoadBalancer of a class": _become("LoadBalancer", loadBalancerClass=FOREIGN_CLASS),
    "ClusterIP without class": _become("ClusterIP", loadBalancerClass=None),
    "strip": steps.strip,
    "wipe": steps.wipe,
    "edit": steps.edit,
    "foreign finalizer": lambda name: steps.finalizers("example.com/guard", of=name),
    "affinity": _spec(sessionAffinity="ClientIP"),
    "no affinity": _spec(sessionAffinity="None", sessionAffinityConfig=None),
    "ranges": _spec(loadBalancerSourceRanges=["10.0.0.0/8"]),
    "no ranges": _spec(loadBalancerSourceRanges=None),
    "Local": _spec(externalTrafficPolicy="Local"),
    "Cluster": _spec(externalTrafficPolicy="Cluster"),
    "note 1": lambda name: steps.annotate(name, note="1"),
    "note 2": lambda name: steps.annotate(name, note="2"),
    "ensure fails": _script("ensure", "error: boom"),
    "ensure fails often": _script("ensure", *["error: boom"] * 3),
    "ensure asks for a pause": _script("ensure", "retry: 0.5"),
    "update fails": _script("update", "error: boom"),
    "get fails": _script("get", "error: boom"),
    "delete fails": _script("delete", "error: boom"),
    "delete asks for a pause": _script("delete", "retry: 0.5"),
}
_CREATES: Final = ("create", "create", "create", "create dual-stack", "create with a class")

OF_NODES: Final[Mapping[str, Step]] = {
    "n4 joins": steps.join("n4"),
    "n4 leaves": steps.leave("n4"),
    "n3 leaves": steps.leave("n3"),
    "n3 joins": steps.join("n3"),
    "n3 excluded": steps.node_label("n3", "true"),
    "n3 not excluded": steps.node_label("n3", "false"),
    "n2 NotReady": steps.ready("n2", "False"),
    "n2 tainted": steps.taint("n2", "ToBeDeletedByClusterAutoscaler"),
    "n2 untainted": steps.taint("n2", None),
    "n1 re-addressed": steps.readdress("n1", "192.168.9.71"),
    "all leave": steps.leave("n1", "n2", "n3", "n4"),
    "n1 joins": steps.join("n1"),
}


def made(seed: int, count: int) -> list[Sequence]:
    """`count` sequences of this seed, which are played together: the same each time."""
    rnd = random.Random(seed)
    shared = [_shared(rnd, number) for number in range(ROUNDS)]
    return [Sequence(f"{seed}-{number}", tuple(_round(rnd, one) for one in shared)) for number in range(count)]


def _shared(rnd: random.Random, number: int) -> tuple[Shared, ...]:
    if number == 0:
        return ()
    if number == ROUNDS // 2:
        return (Shared(RESTART),)  # one a run: each costs seconds
    return (Shared(rnd.choice(list(OF_NODES))),) if rnd.random() < 0.7 else ()


def _round(rnd: random.Random, shared: tuple[Shared, ...]) -> tuple[Item, ...]:
    moves: list[Item] = []
    away = Shared(RESTART) in shared
    for _ in range(rnd.choice((1, 2, 2, 3))):
        kind = rnd.choice(_CREATES) if rnd.random() < 0.25 else rnd.choice(list(OF_SERVICES))
        # With its finalizer taken off while the controller is away, a Service can vanish without a trace: nobody can know then.
        if away and kind in ("strip", "foreign finalizer"):
            kind = "port 81"
        moves.append(Move(kind, rnd.choice(NAMES), rnd.choice(PAUSES)))
    return (*shared, *moves)


def alone(name: str, items: Steps[Item]) -> Sequence:
    """A sequence of these items, to be played by itself."""
    rounds: list[tuple[Item, ...]] = []
    for item in items:
        if isinstance(item, Shared) or not rounds:
            rounds.append((item,))
        else:
            rounds[-1] += (item,)
    return Sequence(name, tuple(rounds))
