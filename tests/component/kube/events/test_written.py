"""Events as they are written: their form, repeats, and the limits of client-go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm_lb.kube import correlation, events
from ccm_lb.kube.correlation import COMBINED, Correlator
from ccm_lb.kube.events import Recorder
from ccm_lb.redaction import Secrets
from tests.component.kube.events.world import START, Counts, EventServer, service, unreachable

pytestmark = pytest.mark.looptime(start=0)


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
    assert (len(message.encode()), message[-2:]) == (1024, "x…")


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
    recorder = Recorder(server, observer=counts, secrets=Secrets(), now=lambda: START)
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
    assert server.most_under_way == events.SHARE
    assert len(server.objects) == 20


async def test_the_events_of_a_service_are_stored_in_the_order_in_which_they_happened(
    recorder: Recorder, server: EventServer
) -> None:
    said = ["Ensuring", "Waiting", "Ensured", "Chosen", "Deleting"]
    for number, reason in enumerate(said):
        server.latencies.append(0.5 - number / 10)  # each one would overtake those before it
        recorder.event(service(), "Normal", reason, reason)
    assert await recorder.flush(5)
    assert [message for message, _ in server.messages()] == said


async def test_an_event_that_could_not_be_written_is_still_the_first_of_its_service(
    recorder: Recorder, server: EventServer
) -> None:
    server.faults["default"] = unreachable
    for reason in ("Ensuring", "Ensured"):
        recorder.event(service(), "Normal", reason, reason)
    await asyncio.sleep(0.5)
    server.faults.clear()
    recorder.event(service(), "Normal", "Deleting", "Deleting")
    recorder.event(service(), "Normal", "Ensuring", "Ensuring")
    assert await recorder.flush(5)
    assert server.messages() == [("Ensuring", 2), ("Ensured", 1), ("Deleting", 1)]


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


async def test_what_is_normal_does_not_use_up_what_warnings_may_say(recorder: Recorder, server: EventServer) -> None:
    for _ in range(30):
        recorder.event(service(), "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")
        assert await recorder.flush(5)
    recorder.event(service(), "Warning", "UnAvailableLoadBalancer", "There are no available nodes for LoadBalancer")
    assert await recorder.flush(5)
    assert [count for _, count in server.messages()] == [25, 1]


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
