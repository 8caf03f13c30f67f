"""Faults on order: which calls or connections they meet, what happens to those, and how often."""

from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from fakecloud.models.base import Address, Identifier, Model, Name, Port

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
# Before: the change is not made. After: it is made, and the client does not learn of it (the lost reply).
When = Literal["before", "after"]
Pause = Annotated[float, Field(ge=0, le=3600)]


class Match(Model):
    """What a fault meets; a field that is absent matches everything. Calls and connections have their own fields."""

    methods: Annotated[tuple[Method, ...], Field(max_length=6)] = ()
    path: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="A path with * for anything, e.g. /v1/load-balancers/*"
    )
    owner: Name | None = Field(default=None, description="The owner's uid")
    cluster: Name | None = None
    load_balancer: Identifier | None = Field(default=None, description="For connections: the load balancer's id")
    address: Address | None = Field(default=None, description="For connections: the address that clients connect to")
    port: Port | None = Field(default=None, description="For connections: the port that clients connect to")
    target: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="For connections: the target's server id or address"
    )
    nth: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Only the n-th call that matches")
    probability: Annotated[float, Field(ge=0, le=1)] | None = None


class StatusFault(Model):
    """Answer with an error of one's choice."""

    kind: Literal["status"]
    status: Annotated[int, Field(ge=400, le=599)]
    body: Any = Field(default=None, description="Text, or JSON; a problem document when absent")
    retry_after_seconds: Pause | None = None
    when: When = "before"


class LatencyFault(Model):
    """Make the answer wait: `seconds` is the time itself, the lower bound (uniform) or the mean."""

    kind: Literal["latency"]
    seconds: Pause
    distribution: Literal["fixed", "uniform", "normal", "exponential"] = "fixed"
    to_seconds: Pause | None = Field(default=None, description="For uniform: the upper bound")
    deviation_seconds: Pause | None = Field(default=None, description="For normal: the standard deviation")
    when: When = "before"

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.to_seconds is not None) != (self.distribution == "uniform"):
            raise ValueError("toSeconds belongs to the distribution uniform, which needs it")
        if (self.deviation_seconds is not None) != (self.distribution == "normal"):
            raise ValueError("deviationSeconds belongs to the distribution normal, which needs it")
        if self.to_seconds is not None and self.to_seconds < self.seconds:
            raise ValueError("toSeconds must not be less than seconds")
        return self


class HangFault(Model):
    """Never answer; the connection stays open until the client or the fault goes away."""

    kind: Literal["hang"]
    when: When = "before"


class ResetFault(Model):
    """Reset the connection instead of answering."""

    kind: Literal["reset"]
    when: When = "before"


class StaleReadsFault(Model):
    """Reads show the cloud as it was so many seconds ago, but never older than this fault."""

    kind: Literal["stale-reads"]
    seconds: Pause


class StaleListsFault(Model):
    """Eventual consistency: lists lag by so many seconds, while reads by id are current."""

    kind: Literal["stale-lists"]
    seconds: Pause


class ActionFault(Model):
    """The change is accepted, and its action stays pending until the fault is removed, or ends in an error."""

    kind: Literal["action"]
    outcome: Literal["pending", "error"]
    message: Annotated[str, Field(min_length=1, max_length=1024)] = "the cloud could not carry this out"


class TokenExpiryFault(Model):
    """The token is refused as expired: 401."""

    kind: Literal["token-expired"]


class OutageFault(Model):
    """The whole API is down, whatever the token: 503 by default."""

    kind: Literal["outage"]
    answer: Literal["status", "reset", "hang"] = "status"


class RateLimitFault(Model):
    """A token bucket; its headers (RateLimit-*, Retry-After) say the truth."""

    kind: Literal["rate-limit"]
    requests_per_second: Annotated[float, Field(gt=0, le=1_000_000)]
    burst: Annotated[int, Field(ge=1, le=1_000_000)] = 1


class TargetDownFault(Model):
    """Targets refuse connections and fail their health checks; their connections are reset."""

    kind: Literal["target-down"]


class RefuseFault(Model):
    """The listener's port refuses connections; those that exist go on."""

    kind: Literal["refuse"]


class BlackholeFault(Model):
    """New connections are accepted, what they send is swallowed, and nothing comes back."""

    kind: Literal["blackhole"]


class SlowFault(Model):
    """New connections are slow, in each direction."""

    kind: Literal["slow"]
    latency_seconds: Annotated[float, Field(ge=0, le=60)] = 0.0
    bytes_per_second: Annotated[int, Field(ge=1)] | None = None


class ResetAfterFault(Model):
    """New connections are reset once the client was sent so many bytes."""

    kind: Literal["reset-after"]
    bytes: Annotated[int, Field(ge=0)]


class HalfOpenFault(Model):
    """The target's end of new connections is gone; the client is not told, and gets no answer."""

    kind: Literal["half-open"]


class SilentFault(Model):
    """The address stops answering: no handshake, no byte, no datagram; connections that exist go quiet."""

    kind: Literal["silent"]


ApiEffect = (
    StatusFault
    | LatencyFault
    | HangFault
    | ResetFault
    | StaleReadsFault
    | StaleListsFault
    | ActionFault
    | TokenExpiryFault
    | OutageFault
    | RateLimitFault
)
TrafficEffect = (
    TargetDownFault | RefuseFault | BlackholeFault | SlowFault | ResetAfterFault | HalfOpenFault | SilentFault
)
# What holds for a place as long as the fault exists, rather than for single connections.
STANDING = (TargetDownFault, RefuseFault, SilentFault)
_API_ONLY = ("methods", "path", "owner", "cluster")
_TRAFFIC_ONLY = ("load_balancer", "address", "port", "target")
_STANDING_REFUSES = ("nth", "probability")

_EXAMPLE: dict[str, Any] = {
    "id": "lost-reply",
    "match": {"methods": ["POST"], "path": "/v1/load-balancers"},
    "effect": {"kind": "reset", "when": "after"},
    "times": 1,
}


class FaultSpec(Model):
    """One fault. Without `times` and `forSeconds` it lasts until it is removed."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    id: Identifier | None = Field(default=None, description="Made up when absent; an id that exists is replaced")
    match: Match = Field(default_factory=Match)
    effect: Annotated[ApiEffect | TrafficEffect, Field(discriminator="kind")]
    times: Annotated[int, Field(ge=1)] | None = Field(default=None, description="So many calls, then no more")
    for_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        traffic = isinstance(self.effect, TrafficEffect)
        wrong = [*(_API_ONLY if traffic else _TRAFFIC_ONLY)]
        if isinstance(self.effect, STANDING):
            wrong += _STANDING_REFUSES
            if self.times is not None:
                raise ValueError(f"{self.effect.kind} has no times: it holds until forSeconds are over")
        if (self.match.target is not None) != isinstance(self.effect, TargetDownFault):
            raise ValueError("match.target belongs to the effect target-down, which needs it")
        if isinstance(self.effect, TargetDownFault):
            wrong += ("load_balancer", "address", "port")
        for name in wrong:
            if getattr(self.match, name):
                alias = type(self.match).model_fields[name].alias
                raise ValueError(f"match.{alias} means nothing to {self.effect.kind}")
        return self


class FaultView(FaultSpec):
    """A fault as it stands: how many calls or connections it has met."""

    id: Identifier | None
    active: Annotated[bool, Field(description="False once its times or seconds are used up")]
    matched: int
    applied: int


class FaultList(Model):
    items: tuple[FaultView, ...]


class Scenario(Model):
    """Faults under one name."""

    description: Annotated[str, Field(max_length=1024)] = ""
    faults: Annotated[tuple[FaultSpec, ...], Field(min_length=1, max_length=100)]


class ScenarioFile(Model):
    """The YAML file of `fakecloud serve --scenarios`."""

    scenarios: dict[Identifier, Scenario]


class NamedScenario(Model):
    name: str
    description: str
    faults: tuple[FaultSpec, ...]


class ScenarioList(Model):
    items: tuple[NamedScenario, ...]
