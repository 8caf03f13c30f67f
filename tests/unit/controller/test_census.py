"""What is counted of Services, and since when they wait."""

import pytest

from ccm_lb.controller.census import Census, Count
from ccm_lb.controller.predicates import Scope
from ccm_lb.objects import Key, Service
from ccm_lb.testing import builders

ADDRESS = builders.published({"ip": "192.0.2.1"})


def none_failed(_: Key) -> int:
    return 0


@pytest.mark.parametrize(
    ("service", "failures", "expected"),
    [
        pytest.param(builders.service(), 0, Count(pending=1), id="no address yet"),
        pytest.param(builders.service(ADDRESS), 0, Count(served=1), id="an address"),
        pytest.param(builders.service(ADDRESS), 2, Count(failing=1), id="an address, and its last change failed"),
        pytest.param(builders.service(), 1, Count(failing=1), id="failed before it had one"),
        pytest.param(
            builders.service(builders.deleting(), builders.finalizers()), 0, Count(deleting=1), id="waits for its end"
        ),
        pytest.param(
            builders.service(builders.of_type("ClusterIP"), builders.finalizers()),
            0,
            Count(deleting=1),
            id="type changed",
        ),
        pytest.param(builders.service(builders.of_type("ClusterIP")), 0, Count(), id="wants none"),
        pytest.param(builders.service(builders.deleting()), 0, Count(), id="goes without ever having had one"),
        pytest.param(builders.service(builders.of_class("example.com/other")), 0, Count(), id="another class"),
    ],
)
def test_each_service_is_counted_once(service: Service, failures: int, expected: Count) -> None:
    assert Census(Scope(), lambda: 5.0).take([service], lambda _: failures) == expected


def test_the_longest_wait_begins_with_the_first_look_and_ends_with_the_address() -> None:
    now = 100.0
    census = Census(Scope(), lambda: now)
    first, second = builders.service(builders.uid("a")), builders.service(builders.uid("b"))
    assert census.take([first], none_failed).longest_wait == 0.0
    now = 130.0
    assert census.take([first, second], none_failed).longest_wait == 30.0
    now = 140.0
    assert census.take([builders.changed(first, ADDRESS), second], none_failed).longest_wait == 10.0


def test_one_that_waits_again_starts_anew() -> None:
    now = 0.0
    census = Census(Scope(), lambda: now)
    service = builders.service()
    census.take([service], none_failed)
    census.take([builders.changed(service, ADDRESS)], none_failed)
    now = 50.0
    assert census.take([service], none_failed).longest_wait == 0.0
