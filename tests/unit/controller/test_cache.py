"""The newest version of each object wins, in whatever order events come."""

from __future__ import annotations

import pytest

from ccm_lb.controller import cache
from ccm_lb.controller.cache import REMEMBERED
from ccm_lb.objects import Key, Node, Service
from ccm_lb.testing import builders

KEY = Key("lb", "web")


def at(version: int, *tweaks: builders.Tweak) -> Service:
    return builders.service(builders.version(version), *tweaks)


def filled(*versions: int) -> cache.Cache[Key, Service]:
    services = cache.services()
    for version in versions:
        services.put(at(version))
    return services


def present(services: cache.Cache[Key, Service]) -> str | None:
    found = services.get(KEY)
    return None if found is None else found.metadata.resource_version


@pytest.mark.parametrize(
    ("versions", "kept"),
    [
        pytest.param((5,), "5", id="one"),
        pytest.param((5, 6), "6", id="newer"),
        pytest.param((6, 5), "6", id="older"),
        pytest.param((9, 10), "10", id="by-number-not-by-text"),
        pytest.param((10, 9), "10", id="by-number-backwards"),
    ],
)
def test_the_newest_is_kept(versions: tuple[int, ...], kept: str) -> None:
    assert present(filled(*versions)) == kept


@pytest.mark.parametrize(("before", "now", "news"), [(5, 6, True), (5, 5, False), (6, 5, False)], ids=str)
def test_put_says_whether_it_was_news(before: int, now: int, news: bool) -> None:  # noqa: FBT001
    assert filled(before).put(at(now)) is news


def test_the_same_version_does_not_replace_the_object() -> None:
    services = filled(5)
    services.put(at(5, builders.port(81)))
    found = services.get(KEY)
    assert found is not None
    assert found.spec.ports[0].port == 80


@pytest.mark.parametrize("version", ["", "abc", "-1", "1.5"])
def test_what_is_no_number_is_older_than_everything(version: str) -> None:
    assert cache.version(version) == 0


def test_a_dropped_object_is_gone_and_returned() -> None:
    services = filled(5)
    dropped = services.drop(KEY)
    assert dropped is not None
    assert dropped.metadata.resource_version == "5"
    assert (services.get(KEY), len(services), list(services)) == (None, 0, [])


def test_dropping_what_is_not_there_is_fine() -> None:
    assert filled().drop(KEY) is None


@pytest.mark.parametrize(
    ("dropped_at", "late", "back"),
    [
        pytest.param(0, 5, False, id="the-last-known-again"),
        pytest.param(0, 4, False, id="an-older-one"),
        pytest.param(0, 6, True, id="a-newer-one"),
        pytest.param(8, 7, False, id="one-from-before-the-end"),
        pytest.param(8, 8, False, id="the-end-itself"),
        pytest.param(8, 9, True, id="one-from-after-the-end"),
        pytest.param(3, 4, False, id="an-end-that-is-older-than-what-was-known"),
    ],
)
def test_a_late_event_does_not_bring_a_dropped_object_back(dropped_at: int, late: int, back: bool) -> None:  # noqa: FBT001
    services = filled(5)
    services.drop(KEY, dropped_at)
    assert services.put(at(late)) is back


def test_an_end_that_comes_before_its_object_is_remembered() -> None:
    services = filled()
    services.drop(KEY, 8)
    assert not services.put(at(7))


def test_the_version_is_known_of_what_is_here_was_here_or_never_was() -> None:
    services = filled(5)
    assert services.version(KEY) == 5
    services.drop(KEY, 9)
    assert services.version(KEY) == 9
    assert services.version(Key("lb", "other")) == 0


def test_an_object_that_came_back_is_as_new_as_itself() -> None:
    services = filled(5)
    services.drop(KEY, 7)
    services.put(at(9))
    assert services.version(KEY) == 9


def test_only_so_many_vanished_names_are_remembered_the_latest() -> None:
    services = cache.services()
    for number in range(REMEMBERED + 2):
        services.drop(Key("lb", f"s{number}"), 7)
    services.drop(Key("lb", "s2"), 8)  # named again: among the latest now
    services.drop(Key("lb", "one-more"), 7)
    remembered = [bool(services.version(Key("lb", f"s{number}"))) for number in range(5)]
    assert remembered == [False, False, True, False, True]


def test_it_may_be_changed_while_it_is_walked_through() -> None:
    services = filled(5)
    for service in services:
        services.drop(service.key)
    assert len(services) == 0


def test_services_are_known_by_namespace_and_name_nodes_by_name() -> None:
    services, nodes = cache.services(), cache.nodes()
    services.put(builders.service())
    services.put(builders.service({"metadata": {"namespace": "other"}}))
    node: Node = builders.node("n1")
    nodes.put(node)
    assert len(services) == 2
    assert nodes.get("n1") is node
