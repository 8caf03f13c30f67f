"""The event recorder against an API server in memory, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from ccm_lb import correlation, events
from ccm_lb.correlation import COMBINED, Correlator
from ccm_lb.errors import (
    ApiError,
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)
from ccm_lb.events import Recorder
from ccm_lb.objects import Service, parse_service

pytestmark = pytest.mark.looptime(start=0)

START = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def service(name: str = "web", namespace: str = "default", uid: str = "") -> Service:
    meta = {"name": name, "namespace": namespace, "uid": uid or f"uid-{namespace}-{name}", "resourceVersion": "7"}
    return parse_service({"apiVersion": "v1", "kind": "Service", "metadata": meta})


class EventServer:
    """Events by namespace and name, and what goes wrong in which namespace."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[tuple[float, str, str]] = []  # when, method, namespace
        self.faults: dict[str, Callable[[], BaseException]] = {}
        self.latency: dict[str, float] = {}
        self.lose_next_reply = False
        self.under_way = 0
        self.most_under_way = 0

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        namespace = path.split("/")[4]
        assert path == f"/api/v1/namespaces/{namespace}/events"
        await self._receive("POST", namespace)
        key = (namespace, body["metadata"]["name"])
        if key in self.objects:
            raise ConflictError("exists", status=409)
        self.objects[key] = dict(body)
        self._reply()

    async def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        _, _, _, _, namespace, _, name = path.split("/")
        await self._receive("PATCH", namespace)
        if (namespace, name) not in self.objects:
            raise NotFoundError("no such event", status=404)
        self.objects[namespace, name].update(body)
        self._reply()

    async def _receive(self, method: str, namespace: str) -> None:
        self.calls.append((asyncio.get_running_loop().time(), method, namespace))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.latency.get(namespace, 0.01))
        finally:
            self.under_way -= 1
        if namespace in self.faults:
            raise self.faults[namespace]()

    def _reply(self) -> None:
        if self.lose_next_reply:
            self.lose_next_reply = False
            raise ApiUnreachableError("connection reset")

    def messages(self, namespace: str = "default") -> list[tuple[str, int]]:
        return [(one["message"], one["count"]) for (where, _), one in self.objects.items() if where == namespace]

    def methods(self, namespace: str = "default") -> list[str]:
        return [method for _, method, where in self.calls if where == namespace]


class Counts:
    def __init__(self) -> None:
        self.posted = 0
        self.dropped: Counter[str] = Counter()

    def event_posted(self) -> None:
        self.posted += 1

    def event_dropped(self, reason: str, n: int = 1) -> None:
        self.dropped[reason] += n


@pytest.fixture
def server() -> EventServer:
    return EventServer()


@pytest.fixture
def counts() -> Counts:
    return Counts()


@pytest.fixture
async def recorder(server: EventServer, counts: Counts) -> AsyncIterator[Recorder]:
    loop = asyncio.get_running_loop()
    made = Recorder(server, observer=counts, now=lambda: START + loop.time())
    made.start()
    yield made
    await made.stop()


def unreachable() -> ApiUnreachableError:
    return ApiUnreachableError("connection refused")


def terminating() -> ForbiddenError:
    return ForbiddenError("unable to create new content because it is being terminated", status=403)


# ---- what is written


async def test_an_event_has_upstreams_form(recorder: Recorder, server: EventServer, counts: Counts) -> None:
    recorder.event(service(), "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
    assert await recorder.flush(5)
    ((namespace, name), body) = next(iter(server.objects.items()))
    assert (namespace, name) == ("default", f"web.{int(START * 1e9):016x}")
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default", "name": name},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Service",
            "namespace": "default",
            "name": "web",
            "uid": "uid-default-web",
            "resourceVersion": "7",
        },
        "type": "Normal",
        "reason": "EnsuringLoadBalancer",
        "message": "Ensuring load balancer",
        "count": 1,
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "source": {"component": "service-controller"},
        "reportingComponent": "service-controller",
        "reportingInstance": "",
    }
    assert counts.posted == 1


async def test_a_repeat_raises_the_count_and_the_last_time(recorder: Recorder, server: EventServer) -> None:
    for _ in range(3):
        recorder.event(service(), "Warning", "Failed", "no")
        assert await recorder.flush(5)
        await asyncio.sleep(60)
    assert server.methods() == ["POST", "PATCH", "PATCH"]
    (body,) = server.objects.values()
    assert (body["count"], body["firstTimestamp"], body["lastTimestamp"]) == (
        3,
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:15:20Z",
    )


@pytest.mark.parametrize(
    "other",
    [
        pytest.param((service("api"), "Warning", "Failed", "no"), id="another-service"),
        pytest.param((service(uid="again"), "Warning", "Failed", "no"), id="created-again"),
        pytest.param((service(), "Normal", "Failed", "no"), id="another-type"),
        pytest.param((service(), "Warning", "Broken", "no"), id="another-reason"),
        pytest.param((service(), "Warning", "Failed", "yes"), id="another-message"),
    ],
)
async def test_what_differs_is_an_event_of_its_own(other: Any, recorder: Recorder, server: EventServer) -> None:
    recorder.event(service(), "Warning", "Failed", "no")
    recorder.event(*other)
    assert await recorder.flush(5)
    assert [count for _, count in server.messages()] == [1, 1]


async def test_a_long_message_is_cut(recorder: Recorder, server: EventServer) -> None:
    recorder.event(service(), "Warning", "Failed", "x" * 5000)
    assert await recorder.flush(5)
    ((message, _),) = server.messages()
    assert (len(message), message[-2:]) == (1024, "x…")


async def test_repeats_during_a_write_are_one_patch(recorder: Recorder, server: EventServer) -> None:
    server.latency["default"] = 1.0
    for _ in range(20):
        recorder.event(service(), "Warning", "Failed", "no")
        await asyncio.sleep(0.04)
    assert await recorder.flush(5)
    assert server.methods() == ["POST", "PATCH"]
    assert server.messages() == [("no", 20)]
    assert server.most_under_way == 1


async def test_events_before_the_start_are_written_then(server: EventServer, counts: Counts) -> None:
    recorder = Recorder(server, observer=counts, now=lambda: START)
    recorder.event(service(), "Normal", "Said", "early")
    assert not await recorder.flush(1)
    recorder.start()
    assert await recorder.flush(1)
    await recorder.stop()
    assert server.messages() == [("early", 1)]


async def test_different_events_are_written_a_few_at_once(recorder: Recorder, server: EventServer) -> None:
    for n in range(20):
        recorder.event(service(f"web-{n}"), "Normal", "Said", "hello")
    assert await recorder.flush(5)
    assert server.most_under_way == events.WRITERS
    assert len(server.objects) == 20


# ---- client-go's limits


async def test_the_tenth_different_message_begins_the_combined_event(recorder: Recorder, server: EventServer) -> None:
    for n in range(12):
        recorder.event(service(), "Warning", "Failed", f"request {n}")
        assert await recorder.flush(5)
    assert server.messages() == [*((f"request {n}", 1) for n in range(9)), (f"{COMBINED}request 11", 3)]


async def test_messages_far_apart_are_not_combined(recorder: Recorder, server: EventServer) -> None:
    for n in range(12):
        recorder.event(service(), "Warning", "Failed", f"request {n}")
        assert await recorder.flush(5)
        if n == 8:
            await asyncio.sleep(601)
    assert [message for message, _ in server.messages()] == [f"request {n}" for n in range(12)]


async def test_an_object_may_speak_25_times_and_then_once_in_300_seconds(
    recorder: Recorder, server: EventServer, counts: Counts
) -> None:
    async def speak() -> int:
        recorder.event(service(), "Warning", "Failed", "no")
        assert await recorder.flush(5)
        return server.messages()[0][1]

    shown = [await speak() for _ in range(27)]
    assert shown[-3:] == [25, 25, 25]
    assert counts.dropped == {"spam": 2}
    await asyncio.sleep(300)
    assert await speak() == 28  # what was not written was counted all the same
    recorder.event(service("other"), "Warning", "Failed", "no")
    assert await recorder.flush(5)
    assert len(server.objects) == 2


def test_only_the_latest_4096_events_are_remembered() -> None:
    correlator = Correlator()
    first, _ = correlator.observe(service("a"), "Normal", "Said", "x", START)
    for n in range(correlation.CACHE_SIZE - 1):
        correlator.observe(service(f"b{n}"), "Normal", "Said", "x", START)
    assert correlator.observe(service("a"), "Normal", "Said", "x", START)[0] is first
    correlator.observe(service("c"), "Normal", "Said", "x", START)  # b0 goes: the one not spoken of for the longest
    assert correlator.observe(service("a"), "Normal", "Said", "x", START)[0] is first
    assert correlator.observe(service("b0"), "Normal", "Said", "x", START)[0].count == 1
    for n in range(correlation.CACHE_SIZE):
        correlator.observe(service(f"d{n}"), "Normal", "Said", "x", START)
    assert correlator.observe(service("a"), "Normal", "Said", "x", START)[0] is not first


def test_two_events_of_one_moment_have_different_names() -> None:
    correlator = Correlator()
    names = {correlator.observe(service(), "Normal", "Said", str(n), START)[0].name for n in range(5)}
    assert len(names) == 5
    assert all(len(name.removeprefix("web.")) == 16 for name in names)


# ---- when writing fails


async def test_an_event_that_was_deleted_is_made_anew(recorder: Recorder, server: EventServer) -> None:
    recorder.event(service(), "Warning", "Failed", "no")
    assert await recorder.flush(5)
    server.objects.clear()
    recorder.event(service(), "Warning", "Failed", "no")
    assert await recorder.flush(5)
    assert server.methods() == ["POST", "PATCH", "POST"]
    assert server.messages() == [("no", 2)]


async def test_a_lost_reply_makes_no_second_event(recorder: Recorder, server: EventServer) -> None:
    server.lose_next_reply = True
    recorder.event(service(), "Warning", "Failed", "no")
    recorder.event(service(), "Warning", "Failed", "no")
    assert await recorder.flush(5)
    assert server.methods() == ["POST", "POST", "PATCH"]
    assert server.messages() == [("no", 2)]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(terminating, id="namespace-terminating"),
        pytest.param(lambda: NotFoundError("namespaces not found", status=404), id="namespace-gone"),
    ],
)
async def test_a_namespace_that_goes_is_no_reason_to_speak(
    fault: Callable[[], BaseException],
    recorder: Recorder,
    server: EventServer,
    counts: Counts,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.faults["default"] = fault
    recorder.event(service(), "Warning", "Failed", "no")
    assert await recorder.flush(1)
    assert server.methods() == ["POST"]
    assert counts.dropped == {"refused": 1}
    assert [one for one in caplog.records if one.levelno > logging.DEBUG and one.name.startswith("ccm_lb")] == []


async def test_a_missing_right_is_said_once(
    recorder: Recorder, server: EventServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults["default"] = lambda: ForbiddenError("cannot create resource events", status=403)
    for n in range(3):
        recorder.event(service(f"web-{n}"), "Warning", "Failed", "no")
    assert await recorder.flush(1)
    said = [one for one in caplog.records if one.levelno == logging.WARNING and one.name == "ccm_lb.events"]
    assert len(said) == 1


async def test_an_event_that_is_refused_is_given_up_and_said(
    recorder: Recorder, server: EventServer, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults["default"] = lambda: InvalidError("message: too strange", status=422)
    recorder.event(service(), "Warning", "Failed", "no")
    assert await recorder.flush(1)
    assert counts.dropped == {"refused": 1}
    assert "the API server refuses it" in caplog.text


FAILURES = [
    pytest.param(unreachable, id="unreachable"),
    pytest.param(lambda: ApiError("broken webhook", status=500), id="500"),
    pytest.param(lambda: ApiError("too many requests", status=429), id="429"),
    pytest.param(lambda: UnauthorizedError("token expired", status=401), id="401"),
]


@pytest.mark.parametrize("fault", FAILURES)
async def test_a_failed_write_is_repeated_with_growing_pauses_and_then_given_up(
    fault: Callable[[], BaseException],
    recorder: Recorder,
    server: EventServer,
    counts: Counts,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.faults["default"] = fault
    recorder.event(service(), "Warning", "Failed", "no")
    recorder.event(service("other"), "Warning", "Failed", "no")
    assert await recorder.flush(60)
    times = [when for when, _, _ in server.calls]
    assert times[:2] == [0, 0]
    assert [round(after - before) for before, after in itertools.pairwise(times[1:])] == [1, 2, 4, 8, 15]
    assert counts.dropped == {"unreachable": 2}
    said = [one for one in caplog.records if one.levelno == logging.WARNING and one.name == "ccm_lb.events"]
    assert [one.__dict__["events"] for one in said] == [2]


async def test_what_was_given_up_is_in_the_count_later(recorder: Recorder, server: EventServer) -> None:
    server.faults["default"] = unreachable
    recorder.event(service(), "Warning", "Failed", "no")
    assert await recorder.flush(60)
    server.faults.clear()
    recorder.event(service(), "Warning", "Failed", "no")
    assert await recorder.flush(1)
    assert server.messages() == [("no", 2)]


async def test_all_that_waited_is_written_as_soon_as_one_write_succeeds(
    recorder: Recorder, server: EventServer, counts: Counts
) -> None:
    server.faults["default"] = unreachable
    for n in range(50):
        recorder.event(service(f"web-{n}"), "Warning", "Failed", "no")
    await asyncio.sleep(4)
    server.faults.clear()
    assert await recorder.flush(5)
    assert len(server.objects) == 50
    assert counts.dropped == {}
    assert asyncio.get_running_loop().time() < 8


async def test_the_pause_that_the_server_asks_for_is_kept(recorder: Recorder, server: EventServer) -> None:
    server.faults["default"] = lambda: ApiError("later", status=429, retry_after=20.0)
    recorder.event(service(), "Warning", "Failed", "no")
    await asyncio.sleep(1)
    server.faults.clear()
    assert await recorder.flush(60)
    assert [round(when) for when, _, _ in server.calls] == [0, 20]


async def test_a_server_that_never_answers_is_given_ten_seconds(recorder: Recorder, server: EventServer) -> None:
    server.latency["default"] = 10_000
    recorder.event(service(), "Warning", "Failed", "no")
    await asyncio.sleep(5)
    server.latency.clear()
    assert await recorder.flush(60)
    assert [round(when) for when, _, _ in server.calls] == [0, 11]
    assert server.messages() == [("no", 1)]


@pytest.mark.parametrize("trouble", ["refusing", "hanging"])
async def test_a_broken_namespace_does_not_keep_the_others_waiting(
    trouble: str, recorder: Recorder, server: EventServer
) -> None:
    if trouble == "refusing":
        server.faults["broken"] = lambda: ApiError("webhook failed", status=500)
    else:
        server.latency["broken"] = 10_000
    for n in range(200):
        recorder.event(service(f"web-{n}", "broken"), "Warning", "Failed", "no")
    await asyncio.sleep(12)  # by now all writers have been there
    for n in range(200):
        recorder.event(service(f"web-{n}", "sound"), "Warning", "Failed", "no")
    began = asyncio.get_running_loop().time()
    while len(server.messages("sound")) < 200:
        await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - began < 3
    assert len(server.methods("broken")) < 12


async def test_a_write_that_was_under_way_does_not_lengthen_the_pause(recorder: Recorder, server: EventServer) -> None:
    server.faults["default"] = unreachable
    for n in range(4):  # all four writers fail at the same time: one pause of a second, not one of 8
        recorder.event(service(f"web-{n}"), "Warning", "Failed", "no")
    await asyncio.sleep(0.5)
    server.faults.clear()
    assert await recorder.flush(2)


async def test_a_slow_success_beside_a_failure_ends_the_pause(recorder: Recorder, server: EventServer) -> None:
    server.latency["default"] = 0.5
    recorder.event(service("slow"), "Normal", "Said", "x")
    await asyncio.sleep(0.1)
    server.latency["default"] = 0.01
    server.faults["default"] = unreachable
    recorder.event(service("quick"), "Normal", "Said", "x")
    await asyncio.sleep(0.1)
    server.faults.clear()
    assert await recorder.flush(0.5)
    assert len(server.objects) == 2


async def test_when_too_much_waits_the_oldest_goes(server: EventServer, counts: Counts) -> None:
    recorder = Recorder(server, observer=counts, now=lambda: START)
    for n in range(events.QUEUE_SIZE + 5):
        recorder.event(service(f"web-{n}"), "Normal", "Said", "x")
    assert counts.dropped == {"overflow": 5}
    recorder.start()
    assert await recorder.flush(60)
    await recorder.stop()
    written = {one["involvedObject"]["name"] for one in server.objects.values()}
    assert "web-4" not in written
    assert len(written) == events.QUEUE_SIZE


async def test_stopping_waits_for_nothing(server: EventServer, counts: Counts) -> None:
    server.faults["default"] = unreachable
    server.latency["slow"] = 5.0
    recorder = Recorder(server, observer=counts)
    recorder.start()
    recorder.event(service(), "Normal", "Said", "x")
    recorder.event(service("web", "slow"), "Normal", "Said", "x")
    assert not await recorder.flush(0.5)
    await recorder.stop()
    assert asyncio.get_running_loop().time() == pytest.approx(0.5)
    calls = len(server.calls)
    await asyncio.sleep(60)
    assert len(server.calls) == calls
