"""What an operation of the API is: one description for the router, the validation and the OpenAPI document."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from aiohttp import web

from fakecloud.cloud.cloud import Cloud
from fakecloud.cloud.intents import ActionOrder
from fakecloud.dataplane.flowlog import FlowLog
from fakecloud.faults.registry import Faults
from fakecloud.journal import Journal
from fakecloud.models.base import Model
from fakecloud.models.journal import Outcome
from fakecloud.models.loadbalancers import Owner
from fakecloud.models.queries import Query
from fakecloud.state.records import State

B = TypeVar("B", bound=Model)
Q = TypeVar("Q", bound=Query)


@dataclass
class Note:
    """What the journal has to know about a call and only the handler can say."""

    outcome: Outcome = Outcome.READ
    owner: Owner | None = None
    resource: str | None = None
    # What faults have ordered for this call: their ids, seconds that its reads lag behind, its action's fate.
    faults: tuple[str, ...] = ()
    lag: float = 0.0
    order: ActionOrder | None = None


@dataclass(frozen=True)
class Services:
    """What handlers work with."""

    cloud: Cloud
    journal: Journal
    faults: Faults
    flows: FlowLog


@dataclass(frozen=True)
class Exchange(Generic[B, Q]):
    """One validated request, and where its journal note goes."""

    services: Services
    body: B
    query: Q
    path: Mapping[str, str]
    headers: Mapping[str, str]
    note: Note

    @property
    def state(self) -> State:
        """What reads see: the present, unless a fault makes them lag."""
        return self.services.cloud.state_ago(self.note.lag)


@dataclass(frozen=True)
class Reply:
    """`stream`, when there is one, is sent bit by bit as server-sent events."""

    status: int
    body: Model | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None


@dataclass(frozen=True)
class Answer:
    """A documented answer."""

    description: str
    model: type[Model] | None = None
    media_type: str = "application/json"


class NoBody(Model):
    """The operation takes no body."""


@dataclass(frozen=True)
class Operation(Generic[B, Q]):
    """`body` and `query` are validated before `handler` is called."""

    method: str
    path: str
    name: str
    summary: str
    handler: Callable[[Exchange[B, Q]], Awaitable[Reply]]
    body: type[B]
    query: type[Q]
    answers: Mapping[int, Answer]
    # Request headers that mean something here, with what they mean.
    headers: Mapping[str, str] = field(default_factory=dict)
    # No body is as good as {}.
    body_optional: bool = False


SERVICES: web.AppKey[Services] = web.AppKey("services", Services)
NOTE: web.RequestKey[Note] = web.RequestKey("note", Note)
