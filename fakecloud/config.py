"""The server's configuration: one frozen value, made once by the command line."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fakecloud.models.faults import Scenario
from fakecloud.state import pools
from fakecloud.state.ipam import Network
from fakecloud.state.networks import AddressSet, target_networks
from fakecloud.state.policy import AddressMode

DEFAULT_POOL = "127.84.0.0/16"


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
    # Loopback needs no right and reaches nobody else; the others are for clusters.
    addresses: AddressMode = AddressMode.LOOPBACK
    # Which interface gets the addresses, for `interface` alone.
    interface: str = "lo"
    # Proxy opens a connection of its own to a target; direct keeps the destination and routes packets there.
    delivery: Literal["proxy", "direct"] = "proxy"
    # Inside 127/8 any user may bind any address, so that no root is needed.
    pools: tuple[Network, ...] = (ipaddress.ip_network(DEFAULT_POOL),)
    target_networks: AddressSet = target_networks()
    # Seconds that a change takes after it was accepted; 0: it is done when the answer arrives.
    action_seconds: Annotated[float, Field(ge=0, le=3600)] = 0.0
    # Calls held for GET /v1/journal; about 1 kB each.
    journal_size: int = 100_000
    # Connections that ended, held for GET /v1/flows; about 0.5 kB each.
    flows_size: int = 10_000
    # Every connection that ended, one JSON line each; None writes none.
    flow_log: Path | None = None
    # Faults by name, out of the file of --scenarios.
    scenarios: Mapping[str, Scenario] = {}
    # Seconds that a client of the API may be without a complete request, or not read its answer; longer than clients keep
    # an idle connection for their next request, which is 15 s for aiohttp.
    client_timeout: float = 30.0
    # Bytes of a request body; 5,000 targets take about 300 kB.
    max_body: int = 2**20
    # Load balancers in all; one more is refused with 409.
    max_load_balancers: Annotated[int, Field(ge=1)] = 10_000
    # Connections in all, each of which takes two sockets; one more is reset.
    max_connections: Annotated[int, Field(ge=1)] = 100_000
    # Seconds for one attempt to connect to a target before the next one is tried.
    connect_timeout: float = 2.0

    @model_validator(mode="after")
    def _pools_make_sense(self) -> "Settings":
        for index, pool in enumerate(self.pools):
            if (reason := pools.refusal(pool, self.pools[:index], self.addresses)) is not None:
                raise ValueError(f"pool {pool} {reason}")
        if self.addresses is AddressMode.SHARED and [pool.num_addresses for pool in self.pools] != [1]:
            raise ValueError("addresses shared takes one pool of one address, the host's or pod's own")
        if self.delivery == "direct" and self.addresses is not AddressMode.INTERFACE:
            raise ValueError("delivery direct needs --addresses interface: packets for 127/8 never leave a machine")
        return self
