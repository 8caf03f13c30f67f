"""Operations on actions."""

from typing import Any

from fakecloud import errors
from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.models.actions import Action, ActionList
from fakecloud.models.queries import ActionQuery, NoQuery


async def list_actions(call: Exchange[NoBody, ActionQuery]) -> Reply:
    return Reply(200, ActionList(items=tuple(call.services.cloud.ledger.select(call.query))))


async def get_action(call: Exchange[NoBody, NoQuery]) -> Reply:
    found = call.services.cloud.ledger.action(call.path["id"])
    if found is None:
        raise errors.not_found("action", call.path["id"], "/v1/actions")
    return Reply(200, found)


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        "GET",
        "/v1/actions",
        "listActions",
        "What was changed, newest first; the newest 10,000 are kept",
        list_actions,
        NoBody,
        ActionQuery,
        {200: Answer("The actions", ActionList)},
    ),
    Operation(
        "GET",
        "/v1/actions/{id}",
        "getAction",
        "One action; a change names its own in the header Action-Id",
        get_action,
        NoBody,
        NoQuery,
        {200: Answer("The action", Action), 404: Answer("There is none")},
    ),
)
