"""What a cloud has, compared with what is wanted."""

from __future__ import annotations

import pytest

from ccm_lb.backends import actual
from ccm_lb.backends.actual import ActualLoadBalancer, Settings

DESIRED: Settings = {
    "name": "a1",
    "listeners": ("TCP/80", "UDP/53"),
    "listeners[TCP/80].targetPort": 30080,
    "listeners[UDP/53].targetPort": 30053,
    "targets": ("n1", "n2"),
    "sourceRanges": (),
    "sessionAffinity.timeoutSeconds": 10,
    "crossZone": True,
    "healthCheck.path": None,
}


def said(**changes: actual.Value) -> list[str]:
    shown = {**DESIRED, **{name.replace("__", "."): value for name, value in changes.items()}}
    return [str(one) for one in actual.differences(DESIRED, ActualLoadBalancer("lb-1", "u", (), shown))]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"algorithm": "least-connections"}, []),
        ({"targets": ("n2", "n1")}, []),
        ({"sessionAffinity__timeoutSeconds": 10.0}, []),
        ({"crossZone": 1}, ["crossZone is 1 instead of True"]),
        ({"name": "mine"}, ["name is mine instead of a1"]),
        ({"healthCheck__path": "/x"}, ["healthCheck.path is /x instead of not set"]),
        ({"targets": ()}, ["targets is without n1, n2"]),
        ({"targets": ("n1", "n9")}, ["targets is without n2 and with n9, which is not wanted"]),
        ({"targets": ("n1", "n2", "n2")}, ["targets is n1, n2, n2"]),
        ({"targets": None}, ["targets is not set instead of n1, n2"]),
        ({"sourceRanges": ("0.0.0.0/0",)}, ["sourceRanges is with 0.0.0.0/0, which is not wanted"]),
        ({"sourceRanges": "all"}, ["sourceRanges is all instead of none"]),
        ({"listeners": ("UDP/53",), "listeners[TCP/80].targetPort": None}, ["listeners is without TCP/80"]),
        ({"listeners[TCP/80].targetPort": 1}, ["listeners[TCP/80].targetPort is 1 instead of 30080"]),
    ],
    ids=str,
)
def test_each_setting_that_is_not_as_desired_is_named(changes: dict[str, actual.Value], expected: list[str]) -> None:
    assert said(**changes) == expected


def test_a_missing_load_balancer_is_one_difference() -> None:
    assert actual.differences(DESIRED, None) == (actual.MISSING,)
    assert str(actual.MISSING) == "the load balancer is missing"


def test_equal_settings_are_equal_documents() -> None:
    one: Settings = {"targets": ("n1", "n2"), "name": "a"}
    other: Settings = {"targets": ("n2", "n1"), "name": "a"}
    assert actual.as_json(one) == actual.as_json(other) == {"targets": ["n1", "n2"], "name": "a"}
