"""What `ccm-lb orphans` prints."""

from __future__ import annotations

import datetime as dt

import pytest

from ccm_lb.backends.actual import ActualLoadBalancer
from ccm_lb.commands import orphans
from ccm_lb.controller.orphans import Orphan

NOW = dt.datetime(2026, 1, 2, 12, 0, tzinfo=dt.UTC)


def orphan(number: int, created_at: str | None, *addresses: str) -> Orphan:
    return Orphan(
        ActualLoadBalancer(f"lb-{number}", f"u{number}", addresses, {}, "lb/web", created_at), "its Service is gone"
    )


def test_the_oldest_stands_first_and_columns_are_aligned() -> None:
    found = [
        orphan(1, "2026-01-02T11:59:00Z", "2001:db8::1", "203.0.113.1"),
        orphan(2, "2026-01-01T10:00:00Z", "lb.example.com"),
    ]
    assert orphans.lines(found, NOW) == [
        "AGE  ADDRESS                  LOAD BALANCER  WHY",
        "26h  lb.example.com           lb-2           its Service is gone",
        "60s  203.0.113.1,2001:db8::1  lb-1           its Service is gone",
    ]


def test_no_orphans_are_said_in_a_sentence() -> None:
    assert orphans.lines([], NOW) == ["no orphans: every load balancer of this cluster has its Service"]


@pytest.mark.parametrize(
    ("created_at", "expected"),
    [
        (None, "-"),
        ("2026-01-02T12:00:05Z", "0s"),
        ("2026-01-02T11:58:00Z", "2m"),
        ("2026-01-02T09:00:00Z", "3h"),
        ("2025-12-30T12:00:00Z", "3d"),
    ],
)
def test_an_age_is_in_its_largest_unit(created_at: str | None, expected: str) -> None:
    assert orphans.age(created_at, NOW) == expected


def test_json_has_everything() -> None:
    assert orphans.as_json([orphan(1, None, "203.0.113.1")]) == [
        {
            "id": "lb-1",
            "addresses": ["203.0.113.1"],
            "createdAt": None,
            "service": "lb/web",
            "serviceUID": "u1",
            "why": "its Service is gone",
        }
    ]
