"""What the transport stands between: a cloud, a fence, a clock that costs no time."""

from __future__ import annotations

from typing import NamedTuple

from aiohttp import web

from ccm_lb.http import transport
from tests.component.recording import RecordingServer, VirtualClock


class Fence:
    def __init__(self) -> None:
        self.held = True
        self.fencing_token: str | None = "uid:7"

    def holds(self) -> bool:
        return self.held


class Cloud(RecordingServer):
    def __init__(self) -> None:
        super().__init__(web.json_response({"ok": True}))


def answer(status: int, retry_after: str | None = None, date: str | None = None) -> web.Response:
    headers = {name: value for name, value in (("Retry-After", retry_after), ("Date", date)) if value is not None}
    return web.Response(status=status, headers=headers)


class World(NamedTuple):
    cloud: Cloud
    fence: Fence
    clock: VirtualClock
    transport: transport.CloudTransport
    metrics: list[tuple[str, str]]
