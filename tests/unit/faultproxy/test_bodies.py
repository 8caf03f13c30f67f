"""JSON that a fault makes, changes or cuts into lines."""

import json
from typing import Any

import pytest

from tests.faultproxy import bodies

IP_MODE = "status.loadBalancer.ingress[].ipMode"


def service(**ingress: str) -> dict[str, Any]:
    return {"kind": "Service", "status": {"loadBalancer": {"ingress": [ingress]}}}


WITH = service(ip="127.84.0.1", ipMode="Proxy")
WITHOUT = service(ip="127.84.0.1")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(WITH, WITHOUT, id="an object"),
        pytest.param({"items": [WITH, WITH]}, {"items": [WITHOUT, WITHOUT]}, id="each item of a list"),
        pytest.param({"type": "ADDED", "object": WITH}, {"type": "ADDED", "object": WITHOUT}, id="a watch event"),
        pytest.param({"status": {}}, {"status": {}}, id="an object without it"),
        pytest.param(
            {"status": {"loadBalancer": {"ingress": None}}}, {"status": {"loadBalancer": {"ingress": None}}}, id="null"
        ),
        pytest.param({"status": 3}, {"status": 3}, id="another type"),
        pytest.param([WITH], [WITH], id="no object at all"),
    ],
)
def test_a_field_is_dropped_wherever_the_object_is(before: object, after: object) -> None:
    assert json.loads(bodies.without_field(json.dumps(before).encode(), IP_MODE)) == after


def test_a_field_of_a_list_itself_can_be_dropped() -> None:
    assert json.loads(bodies.without_field(b'{"items": [{"a": 1, "b": 2}]}', "items[].a")) == {"items": [{"b": 2}]}


def test_what_is_no_json_stays_and_a_line_stays_a_line() -> None:
    assert bodies.without_field(b"not json", IP_MODE) == b"not json"
    assert bodies.without_field(b'{"a": 1}\n', "a") == b"{}\n"


def test_lines_are_whole_wherever_the_chunks_end() -> None:
    assert bodies.split_lines(b"", b'{"a"') == ([], b'{"a"')
    assert bodies.split_lines(b'{"a"', b":1}\n{}\n{") == ([b'{"a":1}\n', b"{}\n"], b"{")


@pytest.mark.parametrize(("code", "reason"), [(410, "Expired"), (429, "TooManyRequests"), (401, "Unauthorized")])
def test_a_status_has_the_reason_that_belongs_to_its_code(code: int, reason: str) -> None:
    status = bodies.status_object(code, None, "ordered")
    assert (status["kind"], status["code"], status["status"], status["message"]) == (
        "Status",
        code,
        "Failure",
        "ordered",
    )
    assert status["reason"] == reason


def test_a_status_says_when_to_come_back() -> None:
    assert bodies.status_object(429, None, "slow down", 7)["details"] == {"retryAfterSeconds": 7}


@pytest.mark.parametrize(
    ("line", "name", "met"),
    [
        (b'{"type":"ADDED","object":{"metadata":{"name":"web"}}}\n', None, True),
        (b'{"type":"ADDED","object":{"metadata":{"name":"web"}}}\n', "^web$", True),
        (b'{"type":"ADDED","object":{"metadata":{"name":"web"}}}\n', "^db$", False),
        (b'{"type":"BOOKMARK","object":{"metadata":{}}}\n', "web", False),
    ],
)
def test_an_event_is_recognised_by_its_object_s_name(*, line: bytes, name: str | None, met: bool) -> None:
    assert bodies.event_name_matches(line, name) is met
