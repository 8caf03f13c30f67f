"""What the process before this one said is learned once, in pages, and is not said again the first time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ccm_lb.errors import ApiUnreachableError, ForbiddenError
from ccm_lb.kube import pastevents
from ccm_lb.kube.events import COMPONENT, Recorder
from ccm_lb.testing import builders
from tests.component.kube.events.world import EventServer

REASONS = {"SyncLoadBalancerFailed", "IPModeChosen"}
SERVICE = builders.service()


def event(
    message: str, reason: str = "SyncLoadBalancerFailed", at: str = "2026-01-01T00:00:00Z", **other: Any
) -> dict[str, Any]:
    meta = SERVICE.metadata
    return {
        "metadata": {"namespace": meta.namespace, "name": f"web.{reason}.{message}"},
        "involvedObject": {"kind": "Service", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
        "type": "Warning",
        "reason": reason,
        "message": message,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 3,
        **other,
    }


class Events:
    """Has these, one in a page."""

    def __init__(self, *items: dict[str, Any], error: Exception | None = None) -> None:
        self.items, self.error = items, error
        self.asked: list[dict[str, str]] = []

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        assert path == "/api/v1/events"
        self.asked.append(dict(params or {}))
        if self.error is not None:
            raise self.error
        at = int((params or {}).get("continue", "0"))
        more = {"continue": str(at + 1)} if at + 1 < len(self.items) else {}
        return {"items": self.items[at : at + 1], "metadata": more}


async def say(recorder: Recorder, message: str, reason: str = "SyncLoadBalancerFailed") -> None:
    recorder.event(SERVICE, "Warning", reason, message)
    assert await recorder.flush(5)


async def test_what_was_said_is_not_said_again_and_then_counted_where_it_stands(
    recorder: Recorder, server: EventServer
) -> None:
    events = Events(event("first"), event("second"))
    await recorder.recall(events, REASONS)
    for message in ("first", "second"):
        await say(recorder, message)
    assert server.calls == []
    first = events.items[0]["metadata"]
    server.objects[first["namespace"], first["name"]] = dict(events.items[0])
    await say(recorder, "first")
    assert [method for _, method, _ in server.calls] == ["PATCH"]
    assert server.objects[first["namespace"], first["name"]]["count"] == 4
    await say(recorder, "third")
    assert [method for _, method, _ in server.calls] == ["PATCH", "POST"]
    assert [one["fieldSelector"] for one in events.asked] == [f"involvedObject.kind=Service,source={COMPONENT}"] * 2


@pytest.mark.parametrize(
    "left",
    [
        event("first", reason="EnsuredLoadBalancer"),
        event("first", at="2025-12-31T23:00:00Z"),
        event("first", count=None),
        event("first", lastTimestamp=None),
        event("first", involvedObject=None),
    ],
    ids=["of another reason", "said before something else", "without a count", "without a time", "about nothing"],
)
async def test_what_is_not_what_was_said_last_is_said(
    recorder: Recorder, server: EventServer, left: dict[str, Any]
) -> None:
    await recorder.recall(Events(left, event("latest")), REASONS)
    await say(recorder, "first")
    assert len(server.calls) == 1


@pytest.mark.parametrize("error", [ForbiddenError("no", status=403), ApiUnreachableError("gone"), TimeoutError()])
async def test_what_cannot_be_read_keeps_nobody_from_working(
    recorder: Recorder, server: EventServer, error: Exception
) -> None:
    await recorder.recall(Events(error=error), REASONS)
    await say(recorder, "first")
    assert len(server.calls) == 1


async def test_a_server_that_does_not_answer_is_not_waited_for(recorder: Recorder) -> None:
    class Silent:
        async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

    began = asyncio.get_running_loop().time()
    await recorder.recall(Silent(), REASONS)
    assert asyncio.get_running_loop().time() - began < 30


def test_of_one_reason_all_that_was_said_together_counts() -> None:
    both = [event("ipMode for v4", "IPModeChosen"), event("ipMode for v6", "IPModeChosen", "2026-01-01T00:00:04Z")]
    found = [pastevents._parsed(one) for one in both]
    assert pastevents.told([one for one in found if one is not None]) == found
