"""What servers, address pools and reserved addresses have in common: they are listed, read, added and removed."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fakecloud.api.intents import action_header
from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.models.base import Model
from fakecloud.models.journal import Outcome
from fakecloud.models.queries import NoQuery
from fakecloud.state.records import Change

B = TypeVar("B", bound=Model)
Handler = Callable[[Exchange[B, NoQuery]], Awaitable[Reply]]
_NONE = Answer("There is none")


def added(call: Exchange[Any, Any], change: Change[Any], shown: Model) -> Reply:
    """201 for what is new, 200 for what was there already."""
    call.note.outcome = change.outcome
    return Reply(201 if change.outcome is Outcome.APPLIED else 200, shown, action_header(change))


def removed(call: Exchange[Any, Any], change: Change[Any]) -> Reply:
    call.note.outcome = change.outcome
    return Reply(204, headers=action_header(change))


def listing(path: str, name: str, summary: str, handler: Handler[NoBody], items: Answer) -> Operation[Any, Any]:
    return Operation("GET", path, name, summary, handler, NoBody, NoQuery, {200: items})


def reading(path: str, name: str, summary: str, handler: Handler[NoBody], one: Answer) -> Operation[Any, Any]:
    return Operation("GET", path, name, summary, handler, NoBody, NoQuery, {200: one, 404: _NONE})


def adding(
    path: str, name: str, summary: str, handler: Handler[B], body: type[B], answers: dict[int, Answer]
) -> Operation[Any, Any]:
    return Operation("POST", path, name, summary, handler, body, NoQuery, answers)


def removing(
    path: str, name: str, summary: str, handler: Handler[NoBody], gone: str = "It is gone", conflict: str | None = None
) -> Operation[Any, Any]:
    refused = {} if conflict is None else {409: Answer(conflict)}
    return Operation(
        "DELETE", path, name, summary, handler, NoBody, NoQuery, {204: Answer(gone), 404: _NONE, **refused}
    )
