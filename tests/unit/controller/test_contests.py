"""When something that another one undoes is done again."""

from __future__ import annotations

import itertools

from ccm_lb.controller import contests
from ccm_lb.controller.contests import Contests, Pace

PACE = Pace(free=1, first=5.0, longest=300.0, calm=300.0)


def answers(pace: Pace, every: float, until: float) -> list[float]:
    """When the disturbances are answered of somebody who undoes each answer `every` seconds after it."""
    made, now, found = Contests(pace), 0.0, []
    while now < until:
        now += made.wait("uid", now)
        made.answered("uid", now)
        found.append(now)
        now += every
    return found


def test_the_first_is_answered_at_once_and_then_after_5_seconds_doubling_to_300() -> None:
    found = answers(PACE, 0.0, 2000.0)
    gaps = [after - before for before, after in itertools.pairwise(found)]
    assert gaps == [5, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300, 300]


def test_who_comes_back_each_minute_is_slowed_as_well() -> None:
    found = answers(PACE, 60.0, 3600.0)
    assert found[:4] == [0, 60, 120, 180]
    assert len(found) < 25


def test_who_comes_back_each_ten_minutes_is_always_answered_at_once() -> None:
    assert answers(PACE, 600.0, 3600.0) == [0, 600, 1200, 1800, 2400, 3000]


def test_the_pauses_shrink_with_calm_and_do_not_vanish_at_once() -> None:
    made, now = Contests(PACE), 0.0
    for _ in range(6):
        now += made.wait("uid", now)
        made.answered("uid", now)
    now += 900.0  # three of six are forgotten
    assert made.wait("uid", now) == 0
    made.answered("uid", now)
    assert made.wait("uid", now) == 40


def test_some_answers_can_be_free() -> None:
    assert answers(Pace(free=3, calm=15.0), 0.0, 20.0) == [0, 0, 0, 5, 15, 35]


def test_asking_again_changes_nothing() -> None:
    made = Contests(PACE)
    made.wait("uid", 0)
    made.answered("uid", 0)
    assert [made.wait("uid", now) for now in (1, 2, 5, 700)] == [4, 3, 0, 0]


def test_it_is_told_once_for_each_contest_and_each_thing() -> None:
    made = Contests(PACE)
    made.wait("uid", 0)
    assert not made.news("uid", "status"), "a first time is no contest"
    made.answered("uid", 0)
    made.wait("uid", 1)
    assert [made.news("uid", "status"), made.news("uid", "status"), made.news("uid", "finalizer")] == [
        True,
        False,
        True,
    ]
    made.answered("uid", 5)
    made.wait("uid", 6)
    assert not made.news("uid", "status")
    made.answered("uid", 15)
    made.wait("uid", 2000)
    assert not made.news("uid", "status"), "it was calm: this is a first time again"
    made.answered("uid", 2000)
    made.wait("uid", 2001)
    assert made.news("uid", "status")


def test_keys_do_not_hold_each_other_up() -> None:
    made = Contests(PACE)
    made.answered("one", 0)
    assert (made.wait("one", 0), made.wait("two", 0)) == (5, 0)


def test_what_was_answered_with_is_remembered() -> None:
    made = Contests(PACE)
    assert made.differs("uid", "a")
    made.answered("uid", 0, "a")
    assert (made.differs("uid", "a"), made.differs("uid", "b")) == (False, True)
    made.note("uid", "b")
    assert not made.differs("uid", "b")


def test_what_was_no_disturbance_shortens_no_pause() -> None:
    made = Contests(PACE)
    made.withdraw("uid")
    made.wait("uid", 0)
    made.withdraw("uid")
    made.answered("uid", 10)
    assert made.wait("uid", 11) == 4


def test_only_so_many_are_remembered() -> None:
    made = Contests(PACE)
    more = [f"uid-{number}" for number in range(contests.REMEMBERED - 1)]
    for key in ("one", "two", "one", *more):
        made.answered(key, 0)
    assert len(made) == contests.REMEMBERED
    assert made.differs("two", None)
    assert not made.differs("one", None)
