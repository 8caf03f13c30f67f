"""The journal's operation."""

from typing import Any

from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.models.journal import CallList
from fakecloud.models.queries import JournalQuery


async def list_calls(call: Exchange[NoBody, JournalQuery]) -> Reply:
    return Reply(200, call.services.journal.select(call.query))


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        "GET",
        "/v1/journal",
        "listCalls",
        "Calls of this API since the process started, oldest first; reading them is not recorded",
        list_calls,
        NoBody,
        JournalQuery,
        {200: Answer("The calls", CallList)},
        journalled=False,
    ),
)
