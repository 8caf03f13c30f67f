"""Operations on the journal of calls and on the log of connections; none of them is recorded in it."""

from collections.abc import AsyncIterator
from typing import Any

from fakecloud.api.operations import Answer, Exchange, NoBody, Operation, Reply
from fakecloud.models.flows import FlowList
from fakecloud.models.journal import Call, CallList, CountList, Verification
from fakecloud.models.queries import CallFilter, FlowQuery, JournalQuery, NoQuery
from fakecloud.models.verification import Expectation


async def list_calls(call: Exchange[NoBody, JournalQuery]) -> Reply:
    return Reply(200, call.services.journal.select(call.query))


async def count_calls(call: Exchange[NoBody, CallFilter]) -> Reply:
    return Reply(200, call.services.journal.counts(call.query))


async def verify_calls(call: Exchange[Expectation, NoQuery]) -> Reply:
    return Reply(200, call.services.journal.verify(call.body))


async def tail_calls(call: Exchange[NoBody, CallFilter]) -> Reply:
    return Reply(200, stream=_events(call.services.journal.follow(call.query)))


async def list_flows(call: Exchange[NoBody, FlowQuery]) -> Reply:
    flows = call.services.flows.select(call.query.load_balancer, call.query.limit)
    return Reply(200, FlowList(items=tuple(flows)))


async def _events(calls: AsyncIterator[Call | None]) -> AsyncIterator[bytes]:
    """A comment after each look keeps the connection known to be alive, and shows the client that nothing is missing."""
    async for one in calls:
        if one is None:
            yield b": up to date\n\n"
        else:
            yield f"id: {one.seq}\ndata: {one.model_dump_json(by_alias=True)}\n\n".encode()


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
    ),
    Operation(
        "GET",
        "/v1/journal/counts",
        "countCalls",
        "How often each kind of call was made",
        count_calls,
        NoBody,
        CallFilter,
        {200: Answer("The counts", CountList)},
    ),
    Operation(
        "GET",
        "/v1/journal/tail",
        "tailCalls",
        "Calls as they come, as server-sent events whose data is a call",
        tail_calls,
        NoBody,
        CallFilter,
        {200: Answer("The stream; it ends when the client leaves", Call, "text/event-stream")},
    ),
    Operation(
        "POST",
        "/v1/journal/verify",
        "verifyCalls",
        "Whether as many calls match as expected; without a bound, none",
        verify_calls,
        Expectation,
        NoQuery,
        {200: Answer("The verdict", Verification)},
        body_optional=True,
    ),
    Operation(
        "GET",
        "/v1/flows",
        "listFlows",
        "The latest connections through load balancers that have ended, newest first",
        list_flows,
        NoBody,
        FlowQuery,
        {200: Answer("The connections", FlowList)},
    ),
)
