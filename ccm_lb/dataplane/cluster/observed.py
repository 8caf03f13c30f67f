"""What was seen of a cluster. Not being allowed to look is told apart from there being nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

Object = Mapping[str, Any]

KUBE_SYSTEM = "kube-system"


@dataclasses.dataclass(frozen=True)
class Withheld:
    """Something that could not be looked at, and why, as the API server said it."""

    reason: str


Seen = Sequence[Object] | Withheld


@dataclasses.dataclass(frozen=True)
class Observed:
    """
    `config_maps` holds those that were asked for, by namespace and name; None means that there is none of that name.

    `everywhere`: the DaemonSets are those of all namespaces, else of kube-system alone. `pods` are those of kube-system.
    """

    daemonsets: Seen = ()
    everywhere: bool = True
    config_maps: Mapping[tuple[str, str], Object | Withheld | None] = dataclasses.field(default_factory=dict)
    pods: Seen = ()
    nodes: Seen = ()
    felix: Object | Withheld | None = None  # Calico's FelixConfiguration `default`

    @property
    def known_daemonsets(self) -> Sequence[Object]:
        """None where they could not be looked at."""
        return () if isinstance(self.daemonsets, Withheld) else self.daemonsets

    def config_map(self, namespace: str, name: str) -> Object | Withheld | None:
        return self.config_maps.get((namespace, name))
