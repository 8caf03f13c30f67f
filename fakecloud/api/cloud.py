"""The operation on the cloud itself."""

from typing import Any

from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.models.cloud import CloudView
from fakecloud.models.queries import NoQuery


async def get_cloud(call: Exchange[NoBody, NoQuery]) -> Reply:
    return Reply(200, call.services.cloud.about())


OPERATIONS: tuple[Operation[Any, Any], ...] = (
    Operation(
        "GET",
        "/v1/cloud",
        "getCloud",
        "How this cloud was started: delivery, kind of addresses, limits",
        get_cloud,
        NoBody,
        NoQuery,
        {200: Answer("What clients have to know", CloudView)},
    ),
)
