"""What counts as a difference, and what the page says of it."""

import pytest

from tests.parity import compare, divergences, observe
from tests.parity.compare import Difference
from tests.parity.divergences import Row
from tests.parity.observe import Occurrence

THEIRS = [{"calls": "ensure[n1]", "events": "A; B"}, {"end": "right"}]
PAGE = f"""# Page

{divergences.TABLE}
|---|---|---|---|---|---|
| create | 1 | events | A; B | B; A | [Order](#order) |
| delete | 2 | calls | - | get \\| x | ? |

## Reasons

### Order

Because. Test: `tests/unit/parity/test_compare.py::test_equal_records_do_not_differ`.

### Empty

No test.

## More
"""


def test_equal_records_do_not_differ() -> None:
    assert list(compare.differences("s", THEIRS, THEIRS)) == []


@pytest.mark.parametrize(
    ("step", "field", "ours"),
    [
        pytest.param(1, "calls", "ensure[n1]; ensure[n1]", id="one-more"),
        pytest.param(1, "events", "B; A", id="another-order"),
        pytest.param(1, "retry", "never comes", id="a-field-of-one-side"),
        pytest.param(2, "end", "", id="nothing"),
    ],
)
def test_each_field_of_each_step_is_held_against_the_other_s(step: int, field: str, ours: str) -> None:
    records = [dict(one) for one in THEIRS]
    before = records[step - 1].get(field, "-")
    records[step - 1][field] = ours
    assert list(compare.differences("s", THEIRS, records)) == [Difference("s", step, field, before, ours or "-")]


def test_a_side_that_took_fewer_steps_is_no_match() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(compare.differences("s", THEIRS, THEIRS[:1]))


def test_the_page_s_rows_and_reasons_are_read() -> None:
    first, second = divergences.rows(PAGE)
    assert first == Row(Difference("create", 1, "events", "A; B", "B; A"), "Order")
    assert (second.difference.ours, second.why) == ("get | x", divergences.UNEXPLAINED)
    reasons = divergences.reasons(PAGE)
    assert list(reasons) == ["Order", "Empty"]
    ((file, function),) = reasons["Order"].tests
    assert divergences.exists(file, function)
    assert not divergences.exists(file, "test_that_nobody_wrote")


def test_a_difference_that_is_not_listed_and_a_listed_one_that_does_not_occur_are_both_said() -> None:
    listed = divergences.rows(PAGE)
    assert list(divergences.complaints([row.difference for row in listed], listed)) == []
    new = Difference("create", 1, "events", "A; B", "A")
    said = list(divergences.complaints([new, listed[1].difference], listed))
    assert said == [
        f"not listed: {divergences.line(Row(new, '?'))}",
        f"listed, and does not occur: {divergences.line(Row(listed[0].difference, '?'))}",
    ]


def test_a_rewritten_page_keeps_reasons_and_everything_around() -> None:
    changed = Difference("create", 1, "events", "A; B", "C")
    new = Difference("update", 3, "calls", "-", "get")
    page = divergences.rewritten(PAGE, [changed, new])
    assert divergences.rows(page) == [Row(changed, "Order"), Row(new, "?")]
    assert divergences.reasons(page) == divergences.reasons(PAGE)
    assert divergences.rewritten(PAGE, [row.difference for row in divergences.rows(PAGE)]) == PAGE


@pytest.mark.parametrize(
    ("occurrence", "text"),
    [
        (("s", "Normal", "EnsuredLoadBalancer", "Ensured load balancer", "service-controller"), "EnsuredLoadBalancer"),
        (
            ("l", "Normal", "EnsuredLoadBalancer", "Ensured load balancer", "service-controller"),
            "l: EnsuredLoadBalancer",
        ),
        (
            ("s", "Warning", "EnsuredLoadBalancer", "Ensured load balancer", "service-controller"),
            "EnsuredLoadBalancer (Warning: Ensured load balancer)",
        ),
        (("s", "Normal", "EnsuredLoadBalancer", "ok", "service-controller"), "EnsuredLoadBalancer (Normal: ok)"),
        (
            ("s", "Normal", "EnsuredLoadBalancer", "Ensured load balancer", "me"),
            "EnsuredLoadBalancer from me",
        ),
    ],
)
def test_every_part_of_an_event_shows(occurrence: tuple[str, str, str, str, str], text: str) -> None:
    assert observe.event_texts([Occurrence(*occurrence)]) == [text]


def test_what_a_controller_may_change_of_a_service_shows() -> None:
    service = {
        "metadata": {"finalizers": [observe.FINALIZER, "example.com/guard"], "deletionTimestamp": "now"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "x.y/z"},
        "status": {
            "loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP", "ports": [{"port": 80, "error": "E"}]}]},
            "conditions": [{"type": "T", "status": "True", "reason": "R"}],
        },
    }
    assert observe.service_text(service) == (
        "LoadBalancer, class x.y/z, deleting, finalizers cleanup example.com/guard, address 192.0.2.1 VIP 80:E, condition T=True R"
    )
    assert (
        observe.service_text({"metadata": {}, "spec": {"type": "ClusterIP"}}) == "ClusterIP, no finalizer, no address"
    )
    assert observe.service_text(None) == "gone"


def test_a_load_balancer_shows_what_it_was_made_from_and_no_number_of_chance() -> None:
    service = {
        "metadata": {"annotations": {"note": "1", observe.LAST_APPLIED: "{}"}},
        "spec": {
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 31234, "targetPort": 8080}],
            "sessionAffinity": "ClientIP",
            "ipFamilies": ["IPv4"],
        },
    }
    node = {"metadata": {"name": "n1"}, "spec": {}, "status": {"addresses": [{"address": "192.0.2.7"}]}}
    assert observe.balancer_text("s", 1, service, [node]) == (
        "s#1, http:TCP/80/np/8080, to n1(no id 192.0.2.7), sessionAffinity ClientIP, annotations {note: 1}"
    )
    assert "to nothing" in observe.balancer_text("s", 1, service, [])


def test_calls_show_their_nodes_and_what_they_came_to() -> None:
    assert observe.call_text("ensure", "s", ["n1", "n2"], "ok") == "ensure[n1 n2]"
    assert observe.call_text("get", "l", [], "error: boom") == "l: get (error: boom)"
