"""Actions: each change of the cloud, and how far it has got."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from fakecloud.models.base import Model


class ActionStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"

    @property
    def finished(self) -> bool:
        return self in (ActionStatus.DONE, ActionStatus.ERROR)


class ActionKind(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


class Action(Model):
    """One change. What it asked for is stored already; done means that traffic follows it, and that what was deleted is gone."""

    id: Annotated[str, Field(pattern=r"^act-[0-9]{1,18}$")]
    kind: ActionKind
    resource_type: Annotated[str, Field(examples=["load-balancer"])]
    resource: str
    status: ActionStatus
    error: str | None = None
    created_at: str
    finished_at: str | None = None


class ActionList(Model):
    """Newest first."""

    items: tuple[Action, ...]
