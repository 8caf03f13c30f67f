"""Which faults strike, decided without a clock or chance of their own."""

import math

import pytest

from fakecloud.faults.buckets import Bucket
from fakecloud.faults.rules import Armed, Subject, meet, seconds_of
from fakecloud.models.faults import FaultSpec, LatencyFault, Match, SlowFault, StatusFault

STATUS = StatusFault(kind="status", status=500)


def armed(**fields: object) -> Armed:
    return Armed("f", FaultSpec(effect=STATUS, **fields))  # type: ignore[arg-type]


def struck(fault: Armed, subject: Subject, *, now: float = 0.0, draw: float = 0.0) -> bool:
    return bool(meet([fault], subject, now, lambda: draw)[1])


@pytest.mark.parametrize(
    ("match", "subject", "expected"),
    [
        pytest.param(Match(), Subject("GET", "/v1/x"), True, id="everything"),
        pytest.param(Match(methods=("POST",)), Subject("GET", "/v1/x"), False, id="another method"),
        pytest.param(Match(path="/v1/*/a"), Subject("GET", "/v1/b/a"), True, id="any path between"),
        pytest.param(Match(path="/v1"), Subject("GET", "/v1/b"), False, id="no prefix without a star"),
        pytest.param(Match(owner="u"), Subject("GET", "/", owner="u"), True, id="its owner"),
        pytest.param(Match(owner="u"), Subject("GET", "/"), False, id="nobody's call"),
        pytest.param(Match(cluster="c"), Subject("GET", "/", cluster="d"), False, id="another cluster"),
    ],
)
def test_a_call_is_met_when_all_that_is_named_agrees(match: Match, subject: Subject, *, expected: bool) -> None:
    assert struck(armed(match=match), subject) is expected


def test_calls_and_connections_have_their_own_faults() -> None:
    slow = Armed("s", FaultSpec(match=Match(port=80), effect=SlowFault(kind="slow", latency_seconds=1)))
    assert not struck(slow, Subject("GET", "/"))
    assert struck(slow, Subject(load_balancer="lb", address="127.0.0.1", port=80))
    assert not struck(slow, Subject(load_balancer="lb", address="127.0.0.1", port=81))
    assert not struck(armed(), Subject(load_balancer="lb"))


def test_times_count_what_was_struck_and_seconds_what_has_passed() -> None:
    call, faults = Subject("GET", "/"), [armed(times=2, match=Match(probability=0.5))]
    strikes = []
    for draw in (0.4, 0.6, 0.4, 0.4):
        faults, striking = meet(faults, call, 0.0, lambda draw=draw: draw)  # type: ignore[misc,assignment]
        strikes.append(bool(striking))
    assert strikes == [True, False, True, False]
    assert (faults[0].matched, faults[0].applied) == (3, 2)
    timed = Armed("f", FaultSpec(effect=STATUS), expires_at=5.0)
    assert [struck(timed, call, now=now) for now in (4.9, 5.0)] == [True, False]


@pytest.mark.parametrize(
    ("effect", "draws", "expected"),
    [
        (LatencyFault(kind="latency", seconds=2), [], 2.0),
        (LatencyFault(kind="latency", seconds=1, distribution="uniform", to_seconds=3), [0.25], 1.5),
        (LatencyFault(kind="latency", seconds=2, distribution="exponential"), [1 - math.exp(-1)], 2.0),
        (LatencyFault(kind="latency", seconds=2, distribution="normal", deviation_seconds=1), [0.0, 0.3], 2.0),
        (
            LatencyFault(kind="latency", seconds=1, distribution="normal", deviation_seconds=5),
            [1 - math.exp(-2), 0.5],
            0.0,
        ),
    ],
)
def test_latency_follows_its_distribution(effect: LatencyFault, draws: list[float], expected: float) -> None:
    numbers = iter(draws)
    assert seconds_of(effect, lambda: next(numbers)) == pytest.approx(expected)


def test_a_bucket_fills_at_its_rate_and_no_further_than_its_size() -> None:
    bucket = Bucket.full(2, 0.5, now=100.0)
    for expected in (True, True, False):
        bucket, passes = bucket.taken(100.0)
        assert passes is expected
    assert (bucket.seconds_to_next, bucket.headers["RateLimit-Reset"]) == (2.0, "4")
    assert [bucket.taken(now)[1] for now in (101.9, 102.0)] == [False, True]
    assert bucket.taken(1000.0)[0].remaining == 1
