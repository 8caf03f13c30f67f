"""The watches that keep the detector informed: what they ask for, when, and what they make of an answer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import aiohttp
import pytest

from ccm_lb.dataplane.cluster.watches import BROKEN_PAUSE, REFUSED_PAUSE, WATCH_SECONDS, Watch
from ccm_lb.errors import ApiUnreachableError, ForbiddenError
from tests.component.world import settle

pytestmark = pytest.mark.looptime

Json = dict[str, Any]
PATH = "/api/v1/namespaces/kube-system/configmaps"
ENDS = 0.0  # the server ends a watch with this
GONE = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}
FORBIDDEN = ForbiddenError("configmaps is forbidden", status=403, reason="Forbidden")


def event(kind: str, version: int) -> Json:
    return {"type": kind, "object": {"metadata": {"name": "kube-proxy", "resourceVersion": str(version)}}}


class Answer:
    """One watch: lines, seconds to wait, errors; where it has no more, the server holds it open for as long as it was asked to."""

    status, reason = 200, "OK"

    def __init__(self, steps: Sequence[Json | float | Exception], status: int = 200) -> None:
        self._steps, self.status, self.content = steps, status, self

    async def iter_any(self) -> AsyncIterator[bytes]:
        for step in self._steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                line = json.dumps(step).encode() + b"\n"
                yield line[:7]  # a line may come in pieces
                yield line[7:]
        if ENDS not in self._steps:
            await asyncio.sleep(WATCH_SECONDS)


class Server:
    """Lists and watches: answers in their order, then watches on which nothing happens. `asked` are the requests, with their time."""

    server = "https://api.example"

    def __init__(self, *watches: Answer, lists: Sequence[Exception | int] = ()) -> None:
        self._watches, self._lists = list(watches), list(lists)
        self._began = asyncio.get_running_loop().time()
        self.asked: list[tuple[int, str]] = []
        self.changes: list[str] = []

    def _note(self, what: str) -> None:
        self.asked.append((round(asyncio.get_running_loop().time() - self._began), what))

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        assert (path, (params or {})["fieldSelector"]) == (PATH, "metadata.name=kube-proxy")
        self._note("list")
        outcome = self._lists.pop(0) if self._lists else 100
        if isinstance(outcome, Exception):
            raise outcome
        return {"metadata": {"resourceVersion": str(outcome)}}

    def kopf_session(self) -> aiohttp.ClientSession:
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def watch(self, params: Mapping[str, str]) -> AsyncIterator[Answer]:
        assert params["fieldSelector"] == "metadata.name=kube-proxy"
        self._note(f"watch from {params['resourceVersion']}")
        yield self._watches.pop(0) if self._watches else Answer(())


class Session:
    """The part of aiohttp's that is used."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def get(self, url: str, *, params: Mapping[str, str], **_: object) -> Any:
        assert url == Server.server + PATH
        return self._server.watch(params)


@contextlib.asynccontextmanager
async def watching(server: Server) -> AsyncIterator[Watch]:
    session: Any = Session(server)
    selector = {"fieldSelector": "metadata.name=kube-proxy"}
    watch = Watch(server, session, PATH, selector, lambda kind, _: server.changes.append(kind))
    task = asyncio.create_task(watch.run())
    await settle()
    try:
        yield watch
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_quiet_watch_asks_for_nothing_but_itself_and_goes_on_where_it_was() -> None:
    server = Server(Answer([event("MODIFIED", 101), 10.0, event("BOOKMARK", 180)]))
    async with watching(server):
        await settle(2 * WATCH_SECONDS + 30)
    first, second = WATCH_SECONDS + 10, 2 * WATCH_SECONDS + 10
    assert server.asked == [(0, "list"), (0, "watch from 100"), (first, "watch from 180"), (second, "watch from 180")]
    assert server.changes == ["", "MODIFIED"], "a bookmark is no change"


async def test_a_version_that_is_too_old_begins_anew_and_what_was_missed_is_looked_for() -> None:
    server = Server(Answer([1.0, GONE]), lists=[100, 500])
    async with watching(server):
        await settle(10)
    assert server.asked == [(0, "list"), (0, "watch from 100"), (6, "list"), (6, "watch from 500")]
    assert server.changes == ["", ""]


async def test_a_broken_connection_loses_nothing() -> None:
    broken = aiohttp.ClientPayloadError("cut")
    server = Server(Answer([event("ADDED", 103), 1.0, broken]))
    async with watching(server):
        await settle(10)
    assert server.asked == [(0, "list"), (0, "watch from 100"), (6, "watch from 103")]


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_hot() -> None:
    server = Server(*(Answer([ENDS]) for _ in range(100)))
    async with watching(server):
        await settle(60)
    assert len(server.asked) == 2 + 60 / BROKEN_PAUSE


async def test_what_is_refused_is_asked_for_ever_more_rarely() -> None:
    server = Server(lists=[FORBIDDEN] * 100)
    async with watching(server) as watch:
        assert watch.begun.is_set(), "nobody waits for what may not be seen"
        await settle(2000)
    times = [at for at, _ in server.asked]
    assert times[:6] == [0, 10, 30, 70, 150, 310]
    assert {after - before for before, after in itertools.pairwise(times[6:])} == {REFUSED_PAUSE}
    assert server.changes == []


async def test_what_was_granted_and_is_refused_while_the_server_starts_is_asked_for_again_soon() -> None:
    refused_long_ago = [FORBIDDEN] * 4
    cut = aiohttp.ClientPayloadError("cut")
    server = Server(Answer([60.0, cut]), Answer((), status=403), lists=[*refused_long_ago, 100, FORBIDDEN, 200])
    async with watching(server):
        await settle(300)
    assert server.asked[4:] == [
        (150, "list"),
        (150, "watch from 100"),
        (215, "watch from 100"),  # refused, as it would be by a server that does not know its rights yet
        (225, "list"),
        (245, "list"),
        (245, "watch from 200"),
    ]


async def test_a_server_that_is_away_is_waited_for() -> None:
    server = Server(lists=[ApiUnreachableError("refused"), ApiUnreachableError("refused"), 100])
    async with watching(server) as watch:
        assert watch.begun.is_set()
        await settle(20)
    assert server.asked == [(0, "list"), (5, "list"), (10, "list"), (10, "watch from 100")]
    assert server.changes == [""]
