"""
What users were told before this process began, by the Events that are still there: so that a restart does not say it again.

Of each Service and reason, what was said last counts: something said earlier and taken back since is news. What `told` leaves out, a new
process says once more; Events live for an hour by default.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from ccm_lb.kube.correlation import COMBINED, Subject

EVENTS = "/api/v1/events"
PAGE = 500
TOGETHER = 5.0
"""Seconds within which events of one reason belong together: one for each address, say."""


class Past(NamedTuple):
    """One Event object as it stands; times are Unix seconds."""

    subject: Subject
    name: str
    type: str
    reason: str
    message: str
    first: float
    last: float
    times: int


class EventList(Protocol):
    """What is needed of the Kubernetes API."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]: ...


async def read(api: EventList, component: str, reasons: Collection[str]) -> list[Past]:
    """The Events on Services by `component` for these reasons, page by page. Raises what the API raised."""
    params = {"fieldSelector": f"involvedObject.kind=Service,source={component}", "limit": str(PAGE)}
    found: list[Past] = []
    while True:
        page = await api.get(EVENTS, params)
        # What is not kept is not held on to: there may be many thousands.
        found += (past for one in page.get("items") or () if (past := _parsed(one)) and past.reason in reasons)
        if not (more := (page.get("metadata") or {}).get("continue")):
            return found
        params["continue"] = more


def told(events: Iterable[Past]) -> list[Past]:
    """Those of the events that hold what was said last."""
    events = list(events)
    newest: dict[tuple[str, str], float] = {}
    for one in events:
        key = one.subject.uid, one.reason
        newest[key] = max(newest.get(key, one.last), one.last)
    return [one for one in events if one.last >= newest[one.subject.uid, one.reason] - TOGETHER]


def _parsed(event: Mapping[str, Any]) -> Past | None:
    about, meta = event.get("involvedObject") or {}, event.get("metadata") or {}
    subject = Subject(str(about.get("namespace") or ""), str(about.get("name") or ""), str(about.get("uid") or ""), "")
    first, last = _seconds(event.get("firstTimestamp")), _seconds(event.get("lastTimestamp"))
    message, count = str(event.get("message") or ""), event.get("count")
    if first is None or last is None or not isinstance(count, int) or message.startswith(COMBINED) or not subject.uid:
        return None  # written by somebody who writes them in another way
    kind, reason = str(event.get("type") or ""), str(event.get("reason") or "")
    return Past(subject, str(meta.get("name") or ""), kind, reason, message, first, last, count)


def _seconds(timestamp: object) -> float | None:
    try:
        return dt.datetime.fromisoformat(str(timestamp)).timestamp()
    except ValueError:
        return None
