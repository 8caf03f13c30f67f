"""What the cloud says of itself."""

from typing import Annotated, Literal

from pydantic import Field

from fakecloud.models.base import Family, Model


class CloudView(Model):
    """How this cloud was started, as far as clients have to know it; it stays the same for as long as the process lives."""

    delivery: Literal["proxy", "direct"] = Field(
        description="proxy: a new connection to a target's port. direct: packets keep their destination"
    )
    addresses: Literal["loopback", "interface", "shared"] = Field(description="Where load balancers' addresses are")
    families: Annotated[tuple[Family, ...], Field(description="Which families load balancers can have")]
    max_load_balancers: Annotated[int, Field(description="One more is refused: 409")]
    max_connections: Annotated[int | None, Field(description="One more is reset; null where none end at the cloud")]
    max_body_bytes: Annotated[int, Field(description="A longer request is refused: 413")]
    action_seconds: Annotated[float, Field(description="How long a change takes after it was accepted")]
