"""On which nodes a Service has pods that serve, from its EndpointSlices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from ccm_lb.dataplane.clients.effect import Endpoints

Object = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Names of nodes, sorted; `ready` counts endpoints, those that name no node as well."""

    here: tuple[str, ...]
    elsewhere: tuple[str, ...]
    ready: int

    def nodes(self, where: Endpoints | None) -> tuple[str, ...]:
        """Of which nodes an outcome is true."""
        if where is None:
            return tuple(sorted((*self.here, *self.elsewhere)))
        return self.here if where is Endpoints.HERE else self.elsewhere


def spread(slices: Iterable[Object], nodes: Iterable[str]) -> Spread:
    """As kube-proxy counts them: an endpoint that says nothing of being ready is."""
    ready = [
        one
        for each in slices
        for one in each.get("endpoints") or ()
        if (one.get("conditions") or {}).get("ready") is not False
    ]
    names = set(nodes)
    here = {str(one.get("nodeName") or "") for one in ready} & names
    return Spread(tuple(sorted(here)), tuple(sorted(names - here)), len(ready))
