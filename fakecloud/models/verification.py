"""What is expected of the journal, and what a reset forgets."""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from fakecloud.models.base import Model
from fakecloud.models.queries import CallFilter


class Expectation(Model):
    """How many calls match; without any bound, none."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"filter": {"applied": True}, "exactly": 0}]})

    filter: CallFilter = Field(default_factory=CallFilter)
    exactly: Annotated[int, Field(ge=0)] | None = None
    at_least: Annotated[int, Field(ge=0)] | None = None
    at_most: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.exactly is not None and (self.at_least is not None or self.at_most is not None):
            raise ValueError("exactly excludes atLeast and atMost")
        return self

    def holds(self, count: int) -> bool:
        if self.exactly is None and self.at_least is None and self.at_most is None:
            return count == 0
        return (
            self.exactly in (None, count)
            and count >= (self.at_least or 0)
            and (self.at_most is None or count <= self.at_most)
        )


class Reset(Model):
    """What to forget: everything unless told otherwise. Configured pools stay."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"journal": False}]})

    state: bool = True
    faults: bool = True
    journal: bool = True
