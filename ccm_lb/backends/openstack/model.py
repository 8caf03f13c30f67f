"""What is wanted, what there is, and what a cloud can do, as values; bodies are in Octavia's words. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

ACTIVE, ERROR = "ACTIVE", "ERROR"
OVN = "ovn"


@dataclasses.dataclass(frozen=True)
class Abilities:
    """What this cloud's Octavia can do: by the version of its API, and by the provider of its load balancers."""

    version: tuple[int, int] = (2, 0)
    provider: str = ""

    @property
    def source_ranges(self) -> bool:
        return self.version >= (2, 12) and self.provider != OVN

    @property
    def proxy_protocol(self) -> bool:
        return self.provider != OVN

    @property
    def proxy_protocol_v2(self) -> bool:
        return self.proxy_protocol and self.version >= (2, 22)

    @property
    def sctp(self) -> bool:
        return self.version >= (2, 23)

    @property
    def additional_vips(self) -> bool:
        return self.version >= (2, 26)

    def http_monitor(self, protocol: str) -> bool:
        """Whether a check by HTTP works; before 2.16 one on UDP is taken, and never passes."""
        return self.provider != OVN and (protocol == "TCP" or self.version >= (2, 16))

    @property
    def all_at_once(self) -> bool:
        """Whether a load balancer is made with everything in one request; ovn leaves the parts PENDING_CREATE for ever."""
        return self.provider != OVN


@dataclasses.dataclass(frozen=True)
class WantedPool:
    """`settings` are those that may change; a pool of another protocol is another pool."""

    protocol: str
    settings: Json
    members: tuple[Json, ...]
    monitor: Json | None


@dataclasses.dataclass(frozen=True)
class WantedListener:
    protocol: str
    port: int
    settings: Json
    pool: WantedPool

    @property
    def key(self) -> tuple[str, int]:
        return self.protocol, self.port


@dataclasses.dataclass(frozen=True)
class Wanted:
    """`fixed` is what a load balancer is made with and keeps."""

    fixed: Json
    listeners: tuple[WantedListener, ...]


@dataclasses.dataclass(frozen=True)
class Tree:
    """One load balancer as Octavia has it; `members` and `monitors` by the id of their pool."""

    load_balancer: Json
    listeners: tuple[Json, ...]
    pools: tuple[Json, ...]
    members: Mapping[str, tuple[Json, ...]]
    monitors: Mapping[str, Json]

    @property
    def id(self) -> str:
        return str(self.load_balancer["id"])


@dataclasses.dataclass(frozen=True)
class Step:
    """One request that brings a load balancer nearer to what is wanted."""

    method: str
    path: str
    body: Json | None = None
