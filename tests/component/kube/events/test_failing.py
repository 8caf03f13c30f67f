"""Events when writing fails: repeated, given up, combined, and never waited for at the end."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable

import pytest

from ccm_lb.errors import (
    ApiError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from ccm_lb.kube import events
from ccm_lb.kube.events import Recorder
from ccm_lb.redaction import Secrets
from tests.component.kube.events.world import FAILURES, START, Counts, EventServer, service, terminating, unreachable

pytestmark = pytest.mark.looptime(start=0)


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
    said = [one for one in caplog.records if one.levelno == logging.WARNING and one.name == "ccm_lb.kube.events"]
    assert len(said) == 1


async def test_an_event_that_is_refused_is_given_up_and_said(
    recorder: Recorder, server: EventServer, counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    server.faults["default"] = lambda: InvalidError("message: too strange", status=422)
    recorder.event(service(), "Warning", "Failed", "no")
    assert await recorder.flush(1)
    assert counts.dropped == {"refused": 1}
    assert "the API server refuses it" in caplog.text


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
    said = [one for one in caplog.records if one.levelno == logging.WARNING and one.name == "ccm_lb.kube.events"]
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
@pytest.mark.parametrize("seconds", [0.0, 0.5, 5.0, 12.0, 40.0], ids=lambda seconds: f"after {seconds} s")
async def test_a_broken_namespace_does_not_keep_the_others_waiting(
    trouble: str, seconds: float, recorder: Recorder, server: EventServer
) -> None:
    if trouble == "refusing":
        server.faults["broken"] = lambda: ApiError("webhook failed", status=500)
    else:
        server.latency["broken"] = 10_000
    for n in range(200):
        recorder.event(service(f"web-{n}", "broken"), "Warning", "Failed", "no")
    await asyncio.sleep(seconds)
    for n in range(200):
        recorder.event(service(f"web-{n}", "sound"), "Warning", "Failed", "no")
    began = asyncio.get_running_loop().time()
    while len(server.messages("sound")) < 200:
        await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - began < 1
    assert len(server.methods("broken")) < 12


async def test_many_namespaces_that_hang_cost_the_others_a_second(recorder: Recorder, server: EventServer) -> None:
    for n in range(20):
        server.latency[f"broken-{n}"] = 10_000
        recorder.event(service("web", f"broken-{n}"), "Warning", "Failed", "no")
    recorder.event(service("web", "sound"), "Warning", "Failed", "no")
    await asyncio.sleep(2 * events.SLOW + 0.5)
    assert server.messages("sound")


async def test_what_a_broken_namespace_has_too_much_costs_no_other_one_an_event(
    recorder: Recorder, server: EventServer, counts: Counts
) -> None:
    server.latency["broken"] = 10_000
    server.faults["sound"] = unreachable
    recorder.event(service("web", "sound"), "Normal", "Said", "kept")
    for n in range(events.QUEUE_SIZE + 50):
        recorder.event(service(f"web-{n}", "broken"), "Warning", "Failed", "no")
    server.faults.clear()
    await asyncio.sleep(2)
    assert counts.dropped["overflow"] > 0
    assert server.messages("sound") == [("kept", 1)]


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
    recorder = Recorder(server, observer=counts, secrets=Secrets(), now=lambda: START)
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
    recorder = Recorder(server, observer=counts, secrets=Secrets())
    recorder.start()
    recorder.event(service(), "Normal", "Said", "x")
    recorder.event(service("web", "slow"), "Normal", "Said", "x")
    assert not await recorder.flush(0.5)
    await recorder.stop()
    assert asyncio.get_running_loop().time() == pytest.approx(0.5)
    calls = len(server.calls)
    await asyncio.sleep(60)
    assert len(server.calls) == calls
