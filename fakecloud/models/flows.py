"""Connections that have ended, as the API shows them."""

from typing import Annotated, Literal

from pydantic import Field

from fakecloud.models.base import Model
from fakecloud.models.listeners import Protocol

Ending = Literal["closed", "reset", "forbidden-source", "no-target", "limit", "idle", "drained", "cut", "fault"]


class Flow(Model):
    """One connection, or for UDP one client's exchange of datagrams. `seconds` is how long it lasted."""

    at: Annotated[str, Field(description="When it ended")]
    load_balancer: str
    protocol: Protocol
    listener: Annotated[str, Field(examples=["127.84.0.1:8080"])]
    client: Annotated[str, Field(examples=["127.0.0.1:50212"])]
    target: Annotated[str | None, Field(examples=["127.0.0.11:30080"])]
    ending: Ending
    bytes_in: int
    bytes_out: int
    seconds: float


class FlowList(Model):
    """Newest first."""

    items: tuple[Flow, ...]
