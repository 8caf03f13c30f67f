"""Query parameters; an unknown one is an error that names it."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from fakecloud.models.base import Model, Name


class Query(Model):
    """Everything in a URL is text, so numbers and booleans are read from it."""

    model_config = ConfigDict(strict=False)


class NoQuery(Query):
    """The operation takes no query parameters."""


class LoadBalancerQuery(Query):
    owner: Name | None = Field(default=None, description="The owner's uid")
    cluster: Name | None = Field(default=None, description="The owner's cluster")
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class JournalQuery(Query):
    since: Annotated[int, Field(ge=0)] = Field(default=0, description="Only calls with a higher seq")
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] | None = None
    mutating: bool | None = Field(default=None, description="true: all but GET and HEAD; false: those alone")
    applied: bool | None = None
    owner: Name | None = None
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1000
