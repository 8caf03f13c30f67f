"""Which event is written next."""

from __future__ import annotations

import pytest

from ccm_lb.kube.correlation import Record, Subject
from ccm_lb.kube.eventqueue import EventQueue


def record(said: str, service: str = "web", namespace: str = "a") -> Record:
    uid = f"{namespace}/{service}"
    return Record(Subject(namespace, service, uid, "7"), said, "Normal", said, said, 0.0, 0.0)


@pytest.fixture
def queue() -> EventQueue:
    return EventQueue(size=6, writers=3, share=2)


def put(queue: EventQueue, *records: Record) -> tuple[Record, ...]:
    for one in records:
        assert queue.put(one) == 0
    return records


def taken(queue: EventQueue) -> list[str]:
    found = []
    while (one := queue.take()) is not None:
        found.append(f"{one.subject.uid} {one.reason}")
    return found


def test_of_a_service_one_is_written_at_a_time_in_order(queue: EventQueue) -> None:
    first, second = put(queue, record("first"), record("second"))
    assert taken(queue) == ["a/web first"]
    queue.done(first)
    assert queue.take() is second
    queue.done(second)
    assert queue.idle


def test_a_repeat_keeps_its_place(queue: EventQueue) -> None:
    first, _ = put(queue, record("first"), record("second"))
    put(queue, first)
    assert queue.waiting == 2
    assert queue.take() is first


def test_what_failed_stays_the_first_even_when_it_came_again_meanwhile(queue: EventQueue) -> None:
    first, second = put(queue, record("first"), record("second"))
    assert queue.take() is first
    put(queue, first)
    assert queue.failed(first) == 1
    assert (queue.take(), queue.waiting) == (None, 2)
    queue.try_again("a")
    assert queue.take() is first
    queue.done(first)
    assert queue.take() is second


def test_namespaces_take_turns_and_have_a_share_each(queue: EventQueue) -> None:
    put(queue, *(record("said", f"web-{n}") for n in range(3)), record("said", namespace="b"))
    assert taken(queue) == ["a/web-0 said", "b/web said", "a/web-1 said"]


def test_a_slow_write_takes_no_share_and_its_namespace_gets_no_other(queue: EventQueue) -> None:
    slow, _, *_ = put(queue, record("said", "slow"), record("said", "next"), record("said", "third"))
    others = [record("said", f"web-{n}", "b") for n in range(2)]
    assert queue.take() is slow
    queue.slow(slow)
    assert queue.take() is None
    put(queue, *others)
    assert taken(queue) == ["b/web-0 said", "b/web-1 said"]
    queue.done(slow)
    assert taken(queue) == ["a/next said"]


def test_after_a_failure_one_write_tries_again_and_success_frees_all(queue: EventQueue) -> None:
    put(queue, record("said", "one"), record("said", "two"), record("said", "three"))
    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    assert queue.failed(first) == 1
    assert queue.failed(second) == 0, "it rests already"
    queue.try_again("a")
    tried = queue.take()
    assert tried is second
    assert queue.take() is None
    assert queue.failed(second) == 2
    queue.try_again("a")
    assert queue.take() is second
    queue.done(second)
    assert len(taken(queue)) == 2


def test_what_is_given_up_is_gone(queue: EventQueue) -> None:
    put(queue, record("said"), record("more"), record("said", "other"), record("again", "other"))
    first, second = queue.take(), queue.take()
    assert first is not None
    assert second is not None
    queue.failed(first)
    assert queue.give_up("a") == 3
    assert not queue.idle, "one is being written"
    queue.done(second)
    assert queue.idle


def test_when_too_much_waits_the_fullest_namespace_loses_its_oldest(queue: EventQueue) -> None:
    put(queue, record("kept", namespace="b"), *(record("said", f"web-{n}") for n in range(5)))
    assert queue.put(record("said", "web-5")) == 1
    assert queue.waiting == 6
    assert taken(queue) == ["b/web kept", "a/web-1 said", "a/web-2 said"]


def test_an_oldest_that_is_not_alone_leaves_the_rest_of_its_service(queue: EventQueue) -> None:
    put(queue, *(record(f"said {n}") for n in range(6)))
    assert queue.put(record("said 6")) == 1
    assert taken(queue) == ["a/web said 1"]


def test_what_waits_behind_a_write_can_be_the_oldest(queue: EventQueue) -> None:
    put(queue, *(record(f"said {n}") for n in range(6)))
    first = queue.take()
    assert first is not None
    put(queue, record("said 6"))
    assert queue.put(record("said 7")) == 1
    queue.done(first)
    assert taken(queue) == ["a/web said 2"]


def test_a_namespace_that_rests_and_lost_everything_is_forgotten_after_its_rest() -> None:
    queue = EventQueue(size=1, writers=3, share=2)
    put(queue, record("said"))
    first = queue.take()
    assert first is not None
    queue.failed(first)
    assert queue.put(record("said", namespace="b")) == 1
    assert not queue.idle
    second = queue.take()
    assert second is not None
    queue.done(second)
    queue.try_again("a")
    assert queue.idle
