"""One resource, listed and watched: what is asked for, when, and what is made of an answer, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from ccm_lb.errors import ApiError, ApiUnreachableError
from ccm_lb.kube.reflector import ANSWER, LONGEST_PAUSE, PAUSES, QUIET, WATCH_SECONDS, Pulse, Reflector
from tests.component.world import settle

pytestmark = pytest.mark.looptime

Json = dict[str, Any]
Step = Json | bytes | float | Exception
FOR_EVER = 1e6
EXPIRED = ApiError("too old resource version", status=410, reason="Expired")
CUT = ApiUnreachableError("the connection was cut")
ENDS: Sequence[Step] = (float(WATCH_SECONDS),)
"""As a server ends a watch that nothing happened on."""


def event(kind: str, version: int, name: str = "web") -> Json:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}


def bookmark(version: int) -> Json:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def error(code: int) -> Json:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "message": "because"}}


class Answer:
    """Lines, seconds that pass and errors, in this order; then the server closes the answer."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps

    async def lines(self) -> AsyncIterator[bytes]:
        for step in self._steps:
            match step:
                case Exception():
                    raise step
                case float():
                    await asyncio.sleep(step)
                case bytes():
                    yield step
                case _:
                    yield json.dumps(step).encode()

    async def read(self) -> bytes:
        return b"".join([line async for line in self.lines()])


class Server:
    """
    Answers in order, then every watch with silence until its end.

    An error in the place of an answer is a refusal, a number an answer whose head comes that much later.
    """

    def __init__(self, *answers: Sequence[Step] | Exception | float) -> None:
        self._answers = list(answers)
        self._began = asyncio.get_running_loop().time()
        self.asked: list[tuple[float, Mapping[str, str]]] = []

    @contextlib.asynccontextmanager
    async def get(self, params: Mapping[str, str]) -> AsyncIterator[Answer]:
        self.asked.append((round(asyncio.get_running_loop().time() - self._began, 2), dict(params)))
        answer = self._answers.pop(0) if self._answers else ENDS
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            answer = ENDS
        yield Answer(answer)

    @property
    def times(self) -> list[float]:
        return [at for at, _ in self.asked]

    @property
    def versions(self) -> list[str]:
        """From which version each request went on; "list" for one that asked for all there is."""
        return [params.get("resourceVersion", "list") for _, params in self.asked]


class World:
    """A reflector of Services, and what it delivered."""

    def __init__(self, *answers: Sequence[Step] | Exception | float, streaming_lists: bool = True) -> None:
        self.server = Server(*answers)
        self.pulse = Pulse.begin(asyncio.get_running_loop().time)
        self.events: list[tuple[str | None, str]] = []
        self.lists = self.breaks = 0
        self.sut = Reflector(
            "services",
            self.server,
            {"fieldSelector": "spec.type=LoadBalancer"},
            self,
            self.pulse,
            streaming_lists=streaming_lists,
        )

    async def deliver(self, kind: str | None, obj: Json) -> None:
        self.events.append((kind, obj["metadata"]["name"]))

    def listed(self) -> None:
        self.lists += 1

    def broke(self) -> None:
        self.breaks += 1

    @contextlib.asynccontextmanager
    async def running(self, seconds: float) -> AsyncIterator[None]:
        task = asyncio.create_task(self.sut.run())
        await settle(seconds)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def run(self, seconds: float) -> None:
        async with self.running(seconds):
            pass


LIST: Sequence[Step] = (event("ADDED", 3, "a"), event("ADDED", 5, "b"), bookmark(7))


# ---- lists


async def test_it_begins_with_what_there_is_and_watches_on_from_there() -> None:
    world = World(LIST, (event("ADDED", 8, "c"), event("MODIFIED", 9, "a"), event("DELETED", 10, "b")))
    await world.run(1)
    assert world.events == [(None, "a"), (None, "b"), ("ADDED", "c"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert world.lists == 1
    begin, watch = (params for _, params in world.server.asked[:2])
    common = {"watch": "true", "allowWatchBookmarks": "true", "fieldSelector": "spec.type=LoadBalancer"}
    assert begin == {**common, "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    assert watch == {**common, "resourceVersion": "7", "timeoutSeconds": str(WATCH_SECONDS)}


def page(*names: str, version: str = "7", more: str = "") -> Sequence[Step]:
    items = [{"metadata": {"name": name, "resourceVersion": "1"}} for name in names]
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    return ({"kind": "ServiceList", "apiVersion": "v1", "items": items or None, "metadata": metadata},)


async def test_a_server_without_streaming_lists_is_asked_page_by_page() -> None:
    world = World(page("a", "b", more="next"), page("c"), streaming_lists=False)
    await world.run(1)
    assert world.events == [(None, "a"), (None, "b"), (None, "c")]
    assert [params.get("continue") for _, params in world.server.asked] == [None, "next", None]
    assert world.server.versions == ["list", "list", "7"]
    assert "watch" not in world.server.asked[0][1]


@pytest.mark.parametrize("status", [400, 422])
async def test_a_server_that_refuses_streaming_lists_is_asked_page_by_page_at_once(status: int) -> None:
    world = World(ApiError("sendInitialEvents is forbidden", status=status), page("a"))
    await world.run(1)
    assert world.events == [(None, "a")]
    assert world.server.times == [0, 0, 0]
    assert world.pulse.problem() is None


async def test_an_empty_list_is_a_list_too() -> None:
    world = World(page(), streaming_lists=False)
    await world.run(1)
    assert (world.events, world.lists) == ([], 1)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((event("ADDED", 3, "a"),), id="without its bookmark"),
        pytest.param((event("ADDED", 3, "a"), CUT), id="cut"),
        pytest.param((event("ADDED", 3, "a"), b'{"type":'), id="half a line"),
    ],
)
async def test_half_a_list_is_none(answer: Sequence[Step]) -> None:
    world = World(answer, LIST)
    await world.run(1)
    assert world.server.versions == ["list", "list", "7"]
    assert world.lists == 1


@pytest.mark.parametrize(
    "answer",
    [
        ({"kind": "Status"},),
        ({"items": [], "metadata": {}},),
        ({"items": [], "metadata": None},),
        ({"items": [1], "metadata": {"resourceVersion": "7"}},),
        (b"<html>",),
        (b"[]",),
    ],
    ids=["no list", "no version", "no metadata", "no objects", "no JSON", "no object"],
)
async def test_what_is_no_list_is_asked_for_again(answer: Sequence[Step]) -> None:
    world = World(answer, page("a"), streaming_lists=False)
    await world.run(1)
    assert world.events == [(None, "a")]


# ---- going on


async def test_a_watch_that_ends_as_asked_is_followed_by_the_next_at_once_and_is_no_failure() -> None:
    world = World(LIST)
    async with world.running(3 * WATCH_SECONDS + 1):
        assert world.server.times == [0, 0, 8, 16, 24]
        assert world.server.versions == ["list", "7", "7", "7", "7"]
        assert world.pulse.problem() is None


async def test_a_bookmark_moves_the_version_and_is_no_event() -> None:
    world = World(LIST, (6.0, bookmark(20), 2.0))
    await world.run(WATCH_SECONDS + 1)
    assert world.server.versions == ["list", "7", "20"]
    assert len(world.events) == 2


@pytest.mark.parametrize("broken", [CUT, (event("MODIFIED", 9), CUT), ()], ids=["refused", "cut", "ended early"])
async def test_a_broken_connection_is_gone_on_from_where_it_was(broken: Sequence[Step] | Exception) -> None:
    world = World(LIST, broken, broken, broken)
    await world.run(5)
    assert "list" not in world.server.versions[1:]
    assert world.lists == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_is_not_asked_for_everything(status: int) -> None:
    world = World(LIST, ApiError("busy", status=status))
    await world.run(1)
    assert world.server.versions == ["list", "7", "7"]


@pytest.mark.parametrize(
    "strike",
    [
        pytest.param(EXPIRED, id="410"),
        pytest.param(ApiError("no leader", status=500), id="500"),
        pytest.param((error(410),), id="410 in the stream"),
        pytest.param((error(500),), id="500 in the stream"),
        pytest.param(({"type": "ERROR", "object": {}},), id="an error without a word"),
        pytest.param((b"<html>",), id="no JSON"),
        pytest.param(({"type": "ADDED"},), id="no event"),
        pytest.param((b"1",), id="no object"),
    ],
)
async def test_after_what_may_have_lost_events_everything_is_listed(strike: Sequence[Step] | Exception) -> None:
    world = World(LIST, strike, (*LIST[:1], bookmark(30)))
    await world.run(1)
    assert world.server.versions == ["list", "7", "list", "30"]
    assert world.lists == 2


async def test_an_object_without_a_version_is_delivered_and_ends_nothing() -> None:
    odd = {"type": "ADDED", "object": {"metadata": {"name": "odd"}}}
    world = World(LIST, (event("MODIFIED", 9), odd, *ENDS))
    await world.run(WATCH_SECONDS + 1)
    assert world.events[2:] == [("MODIFIED", "web"), ("ADDED", "odd")]
    assert world.server.versions == ["list", "7", "9"]


# ---- silence


async def test_a_watch_without_a_line_is_given_up() -> None:
    world = World(LIST, (FOR_EVER,), LIST)
    await world.run(QUIET + 1)
    assert world.server.times[2] == pytest.approx(QUIET + PAUSES[0], abs=0.1)
    assert world.server.versions == ["list", "7", "list", "7"]


async def test_an_answer_without_a_head_is_waited_for_a_few_seconds() -> None:
    world = World(LIST, FOR_EVER, LIST)
    await world.run(ANSWER + 1)
    assert world.server.times[2] == pytest.approx(ANSWER + PAUSES[0], abs=0.1)


async def test_a_server_that_is_slow_and_not_silent_gets_through() -> None:
    slow = (7.0, *LIST)
    world = World(slow, slow, slow)
    await world.run(30)
    assert world.lists == 1


async def test_a_list_that_does_not_begin_is_given_up_as_soon() -> None:
    world = World((FOR_EVER,), LIST)
    await world.run(ANSWER + 1)
    assert world.server.times[1] == pytest.approx(ANSWER + PAUSES[0], abs=0.1)


async def test_a_long_list_is_read_for_as_long_as_something_comes() -> None:
    slow = [step for number in range(20) for step in (event("ADDED", number + 1), 3.0)]
    world = World([*slow, bookmark(99)])
    await world.run(61)
    assert world.server.versions[:2] == ["list", "99"]
    assert world.lists == 1


# ---- pauses


async def test_pauses_grow_to_a_few_seconds_and_no_further() -> None:
    world = World(*[EXPIRED] * 50)
    await world.run(120)
    gaps = [after - before for before, after in zip(world.server.times[:30], world.server.times[1:31], strict=True)]
    assert gaps == pytest.approx([*PAUSES, *[PAUSES[-1]] * (30 - len(PAUSES))], abs=0.02)
    assert 12 * max(PAUSES) < 30, "as many strikes as that are over within the time that is promised"


async def test_a_pause_that_the_server_asks_for_is_kept_within_reason() -> None:
    world = World(ApiError("busy", status=429, retry_after=3.0), ApiError("busy", status=429, retry_after=3600.0), LIST)
    await world.run(20)
    assert world.server.times[:3] == pytest.approx([0, 3, 3 + LONGEST_PAUSE], abs=0.02)


async def test_what_worked_for_a_while_is_tried_again_at_once() -> None:
    world = World(LIST, *[CUT] * 5, (6.0, event("MODIFIED", 9), CUT), LIST)
    await world.run(60)
    broke = world.server.times[6] + 6
    assert world.server.times[7] - broke == pytest.approx(PAUSES[0], abs=0.02)


async def test_lists_that_succeed_before_a_watch_that_fails_are_not_asked_for_hot() -> None:
    world = World(*[one for _ in range(50) for one in (LIST, EXPIRED)])
    await world.run(60)
    assert len(world.server.asked) < 100


# ---- what is said


def test_what_is_waited_for_fits_into_the_ten_seconds_that_are_promised() -> None:
    assert WATCH_SECONDS < QUIET < 10
    assert 2 * ANSWER <= 10
    assert LONGEST_PAUSE < 10


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((b"<html>",), "the server sent something that is no JSON object"),
        (({"type": "ADDED"},), "the server sent something that is no event"),
        (({"kind": "Status"},), "the server answered with something that is no list"),
    ],
)
async def test_what_is_no_kubernetes_api_is_called_so(answer: Sequence[Step], words: str) -> None:
    world = World(*[answer] * 9, streaming_lists="event" in words)
    async with world.running(1):
        assert world.pulse.problem() == words


async def test_a_line_of_a_watch_is_proof_and_the_end_of_a_list_is_none() -> None:
    world = World(EXPIRED, EXPIRED, LIST, (2.0, bookmark(9), FOR_EVER))
    async with world.running(2):
        assert world.pulse.problem() is not None
        await settle(1)
        assert world.pulse.problem() is None


async def test_one_failure_is_no_problem_and_a_second_one_is_until_something_is_heard() -> None:
    world = World(EXPIRED, (error(500),), (2.0, *LIST))
    async with world.running(0.05):
        assert world.pulse.problem() is None
        await settle(1)
        assert world.pulse.problem() == "500 because"
        await settle(4)
        assert world.lists == 1
        assert world.pulse.problem() is not None
        await settle(WATCH_SECONDS)
        assert world.pulse.problem() is None


async def test_a_head_without_a_line_is_no_proof() -> None:
    world = World(LIST, *[()] * 10)
    async with world.running(10):
        assert "ended a watch of 8 s after 0.0 s" in (world.pulse.problem() or "")
        assert world.pulse.silence() > 9


@pytest.mark.parametrize("streaming_lists", [True, False])
async def test_lists_that_succeed_do_not_hide_that_no_watch_does(streaming_lists: bool) -> None:  # noqa: FBT001
    one = LIST if streaming_lists else page("a")
    world = World(*[answer for _ in range(60) for answer in (one, EXPIRED)], streaming_lists=streaming_lists)
    async with world.running(60):
        assert world.pulse.problem() == "too old resource version"
        assert world.pulse.silence() > 50


async def test_silence_is_a_problem_before_the_second_attempt_fails() -> None:
    world = World(LIST, (FOR_EVER,), (FOR_EVER,))
    async with world.running(QUIET + 2):
        assert world.pulse.problem() == "the server was silent"


async def test_a_failure_that_lasts_is_logged_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(LIST, *[EXPIRED] * 5, CUT, LIST)
    with caplog.at_level(logging.INFO):
        await world.run(30)
    said = [(record.__dict__["resource"], record.__dict__["reason"]) for record in caplog.records]
    assert said == [("services", "too old resource version"), ("services", "the connection was cut")]
    assert world.breaks == 1
