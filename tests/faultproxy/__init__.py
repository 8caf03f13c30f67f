"""
A proxy that stands before the genuine API server, or before any HTTP server, and breaks what a test asks it to break.

    async with FaultProxy(plane.url, ca=plane.ca) as proxy:
        proxy.add(Rule(Cut(applied=True), Match(method="PATCH", path="/services/.*/status"), nth=2, times=1))

`rules` and `bodies` decide and rewrite without I/O; `proxy`, `downstream` and `exchange` carry bytes.
"""

from tests.faultproxy.effects import (
    Act,
    Answer,
    Cut,
    Delay,
    DropField,
    DuplicateEvents,
    Effect,
    HoldEvents,
    InjectError,
    Page,
    ReorderEvents,
    Stall,
)
from tests.faultproxy.exchange import Exchange
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Armed, Match, Request, Rule

__all__ = [
    "Act",
    "Answer",
    "Armed",
    "Cut",
    "Delay",
    "DropField",
    "DuplicateEvents",
    "Effect",
    "Exchange",
    "FaultProxy",
    "HoldEvents",
    "InjectError",
    "Match",
    "Page",
    "ReorderEvents",
    "Request",
    "Rule",
    "Stall",
]
