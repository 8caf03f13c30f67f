"""The server's configuration: one frozen value, made once by the command line."""

import ipaddress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, model_validator

from fakecloud.ipam import Network
from fakecloud.networks import DEFAULT_TARGET_NETWORKS, AddressSet

DEFAULT_POOL = "127.84.0.0/16"
_LOOPBACK = ipaddress.ip_network("127.0.0.0/8")


class Settings(BaseModel):
    """What `fakecloud serve` was told; every field's default is what a newcomer needs."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    # Loopback: nobody else reaches the API unless the user says so.
    listen: str = "127.0.0.1"
    # 0 asks the kernel for any free port; the ready file says which.
    port: int = 8780
    token: str
    # SQLite file; None keeps everything in memory and forgets it at the end.
    state: Path | None = None
    # Inside 127/8 any user may bind any address, so that no root is needed.
    pools: tuple[Network, ...] = (ipaddress.ip_network(DEFAULT_POOL),)
    target_networks: AddressSet = AddressSet.of(DEFAULT_TARGET_NETWORKS)
    # Calls held for GET /v1/journal; about 1 kB each.
    journal_size: int = 100_000
    # Bytes of a request body; 5,000 targets take about 300 kB.
    max_body: int = 2**20
    # Seconds for one attempt to connect to a target before the next one is tried.
    connect_timeout: float = 2.0

    @model_validator(mode="after")
    def _pools_make_sense(self) -> "Settings":
        for index, pool in enumerate(self.pools):
            if (reason := pool_refusal(pool, self.pools[:index])) is not None:
                raise ValueError(f"pool {pool} {reason}")
        return self


def pool_refusal(network: Network, others: tuple[Network, ...]) -> str | None:
    """Why addresses can't be given out of a network, or None when they can."""
    if network.version != _LOOPBACK.version or not network.subnet_of(_LOOPBACK):  # type: ignore[arg-type]
        return f"lies outside {_LOOPBACK}, where alone any user may bind every address; choose e.g. 127.90.0.0/24"
    clash = next((other for other in others if network.overlaps(other)), None)
    return None if clash is None else f"overlaps the pool {clash}"
