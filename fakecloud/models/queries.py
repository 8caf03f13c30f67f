"""Query parameters; an unknown one is an error that names it."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from fakecloud.models.base import Model, Name
from fakecloud.models.journal import Outcome

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"


class Query(Model):
    """Everything in a URL is text, so numbers and booleans are read from it."""

    model_config = ConfigDict(strict=False)


class NoQuery(Query):
    """The operation takes no query parameters."""


class LoadBalancerQuery(Query):
    owner: Name | None = Field(default=None, description="The owner's uid")
    cluster: Name | None = Field(default=None, description="The owner's cluster")
    tag: Annotated[tuple[Name, ...], Field(max_length=16)] = Field(
        default=(), description="key=value, or key alone for any value; repeatable, all must match"
    )
    id: Annotated[tuple[Name, ...], Field(max_length=1000)] = Field(
        default=(), description="Several load balancers at once; repeatable, ids that do not exist are left out"
    )
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class ActionQuery(Query):
    resource: Name | None = Field(default=None, description="The id of what was changed")
    status: Literal["pending", "running", "done", "error"] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class CallFilter(Query):
    """Which calls of the journal; a field that is absent lets all pass."""

    since: Annotated[int, Field(ge=0)] = Field(default=0, description="Only calls with a higher seq")
    since_time: Annotated[str, Field(pattern=_TIME)] | None = Field(
        default=None, description="Only calls at that time (UTC) or later, e.g. 2026-01-31T12:00:00Z"
    )
    method: Method | None = None
    path: Annotated[str, Field(min_length=1, max_length=1024)] | None = Field(
        default=None, description="A path with * for anything"
    )
    mutating: bool | None = Field(default=None, description="true: all but GET and HEAD; false: those alone")
    applied: bool | None = Field(default=None, description="true: what changed something")
    outcome: Outcome | None = None
    status: Annotated[int, Field(ge=0, le=599)] | None = Field(default=None, description="0: no answer was sent")
    owner: Name | None = None
    cluster: Name | None = None
    resource: Name | None = None
    user_agent: Name | None = Field(default=None, description="A user agent with * for anything")
    fault: Name | None = Field(default=None, description="The id of a fault that met it")


class JournalQuery(CallFilter):
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000


class FlowQuery(Query):
    load_balancer: Name | None = Field(default=None, description="The load balancer's id")
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000
