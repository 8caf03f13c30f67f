"""Which requests a fault meets."""

import pytest

from tests.faultproxy.rules import Match, Request, Rule, RuleBook

PATCH = Request("PATCH", "/api/v1/namespaces/a/services/web/status", {"fieldManager": "ccm-lb"}, "ccm-lb/0.1")
WATCH = Request("GET", "/api/v1/services", {"watch": "true", "allowWatchBookmarks": "true"}, "kopf/1.45")
LIST = Request("GET", "/api/v1/services", {}, "kopf/1.45")


@pytest.mark.parametrize(
    ("match", "met"),
    [
        pytest.param(Match(), [PATCH, WATCH, LIST], id="nothing asked"),
        pytest.param(Match(method="PATCH"), [PATCH], id="method"),
        pytest.param(Match(method="PUT|PATCH"), [PATCH], id="one of two methods"),
        pytest.param(Match(method="PAT"), [], id="a method is meant whole"),
        pytest.param(Match(path="/services$"), [WATCH, LIST], id="path"),
        pytest.param(Match(query={"watch": "true"}), [WATCH], id="query"),
        pytest.param(Match(query={"watch": "false"}), [], id="another value of the query"),
        pytest.param(Match(user_agent="^kopf/"), [WATCH, LIST], id="user agent"),
        pytest.param(Match(watch=True), [WATCH], id="watches"),
        pytest.param(Match(watch=False), [PATCH, LIST], id="all but watches"),
        pytest.param(Match(mutating=True), [PATCH], id="writes"),
        pytest.param(Match(mutating=False, watch=False), [LIST], id="two conditions"),
    ],
)
def test_a_match_is_the_conjunction_of_what_is_asked(match: Match, met: list[Request]) -> None:
    assert [request for request in (PATCH, WATCH, LIST) if match.matches(request)] == met


@pytest.mark.parametrize(
    ("rule", "met"),
    [
        pytest.param(Rule("x"), [1, 2, 3, 4], id="every request"),
        pytest.param(Rule("x", nth=3), [3, 4], id="from the third on"),
        pytest.param(Rule("x", times=2), [1, 2], id="twice"),
        pytest.param(Rule("x", nth=2, times=1), [2], id="the second only"),
    ],
)
def test_a_rule_meets_the_requests_it_was_counted_for(rule: Rule[str], met: list[int]) -> None:
    book: RuleBook[str] = RuleBook()
    book.add(rule, now=0.0)
    assert [number for number in (1, 2, 3, 4) if book.effects(PATCH, now=1.0)] == met


def test_only_matching_requests_are_counted() -> None:
    book: RuleBook[str] = RuleBook()
    armed = book.add(Rule("x", Match(method="PATCH"), nth=2), now=0.0)
    assert [book.effects(request, 0.0) for request in (PATCH, LIST, WATCH, PATCH)] == [[], [], [], ["x"]]
    assert (armed.seen, armed.hits) == (2, 1)


def test_a_rule_expires() -> None:
    book: RuleBook[str] = RuleBook()
    book.add(Rule("x", seconds=5.0), now=100.0)
    assert book.effects(LIST, now=104.9) == ["x"]
    assert book.effects(LIST, now=105.0) == []


def test_effects_come_in_the_order_of_their_rules_until_removed() -> None:
    book: RuleBook[str] = RuleBook()
    first = book.add(Rule("first"), now=0.0)
    book.add(Rule("second"), now=0.0)
    assert book.effects(LIST, 0.0) == ["first", "second"]
    book.remove(first)
    book.remove(first)
    assert book.effects(LIST, 0.0) == ["second"]
    book.clear()
    assert book.effects(LIST, 0.0) == []
