"""What conditions say, and when they are written."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_lb.controller import conditions
from ccm_lb.controller.conditions import DEGRADED, PAUSED, PORTS_ERROR, PROVISIONING, SERVING, Condition
from ccm_lb.objects import PortStatus, Service
from ccm_lb.testing import builders

UDP = PortStatus(port=443, protocol="UDP", error="ProtocolNotSupported")
MIXED = PortStatus(port=443, protocol="UDP", error="MixedProtocolNotSupported")
BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
OTHER = {"type": "Other", "status": "True"}
LACK = ("PortsNotSupported", "a port is not served")


def saying(*said: Condition, **metadata: Any) -> Service:
    """A Service on which another's condition stands, and these."""
    bare = builders.service({"metadata": metadata})
    entries = conditions.entries(bare, said, BEFORE, written_anyway=True)
    return builders.service({"metadata": metadata, "status": {"conditions": [OTHER, *entries]}})


def ports_error(*ports: PortStatus) -> Condition:
    return conditions.not_served(ports)


@pytest.mark.scenario("B69")
@pytest.mark.parametrize(
    ("service", "ports", "written"),
    [
        pytest.param(saying(), [], None, id="nothing to say"),
        pytest.param(saying(), [UDP], ("True", "ProtocolNotSupported", NOW), id="begins"),
        pytest.param(
            saying(), [MIXED], ("True", "LoadBalancerMixedProtocolNotSupported", NOW), id="by upstream's name"
        ),
        pytest.param(saying(ports_error(UDP)), [UDP], None, id="stands"),
        pytest.param(
            saying(ports_error(UDP)),
            [MIXED],
            ("True", "LoadBalancerMixedProtocolNotSupported", BEFORE),
            id="for another reason",
        ),
        pytest.param(saying(ports_error(UDP)), [], ("False", "PortsServed", NOW), id="ends"),
    ],
)
def test_a_condition_of_trouble_comes_with_it_and_says_when_it_ended(
    service: Service, ports: list[PortStatus], written: tuple[str, str, str] | None
) -> None:
    found = conditions.entries(service, [ports_error(*ports)], NOW)
    if written is None:
        assert found == ()
    else:
        [entry] = found
        assert (entry["status"], entry["reason"], entry["lastTransitionTime"]) == written


def test_what_ended_is_not_written_again() -> None:
    entry = {
        "type": PORTS_ERROR,
        "status": "False",
        "reason": "PortsServed",
        "message": "The load balancer serves all ports",
    }
    service = builders.service({"status": {"conditions": [entry]}})
    assert conditions.entries(service, [ports_error()], NOW, written_anyway=True) == ()


@pytest.mark.parametrize(
    ("one", "trouble"),
    [
        pytest.param(Condition(SERVING, True, "", ""), False, id="serving"),
        pytest.param(Condition(SERVING, False, "", ""), True, id="not serving"),
        pytest.param(Condition(PROVISIONING, True, "", ""), True, id="provisioning"),
        pytest.param(Condition(DEGRADED, False, "", ""), False, id="not degraded"),
        pytest.param(Condition(PAUSED, True, "", ""), True, id="paused"),
    ],
)
def test_only_what_would_mislead_a_user_who_does_not_see_it_is_trouble(one: Condition, trouble: bool) -> None:  # noqa: FBT001
    assert one.is_trouble is trouble


def test_another_ones_conditions_are_neither_read_nor_removed() -> None:
    service = saying(ports_error(UDP))
    assert set(conditions.standing(service)) == {PORTS_ERROR}
    assert conditions.said(service) == {ports_error(UDP)}
    assert conditions.removals(conditions.standing(service)) == ({"type": PORTS_ERROR, "$patch": "delete"},)


def test_the_generation_is_told_where_services_have_one() -> None:
    [entry] = conditions.entries(saying(generation=3), [ports_error(UDP)], NOW)
    assert entry["observedGeneration"] == 3
    [later] = conditions.entries(
        builders.service({"metadata": {"generation": 4}, "status": {"conditions": [entry]}}), [ports_error(UDP)], NOW
    )
    assert later["observedGeneration"] == 4
    [without] = conditions.entries(saying(), [ports_error(UDP)], NOW)
    assert "observedGeneration" not in without


def test_what_another_one_did_to_them_is_undone() -> None:
    kept = [ports_error(UDP), conditions.degraded([LACK])]
    service = saying(conditions.degraded([("Multiple", "something else")]), conditions.paused(saying(), "a"))
    restored = conditions.restoring(service, kept, NOW)
    assert [(one["type"], one.get("reason", one.get("$patch"))) for one in restored] == [
        (DEGRADED, "PortsNotSupported"),
        (PORTS_ERROR, "ProtocolNotSupported"),
        (PAUSED, "delete"),
    ]
    assert restored[0]["lastTransitionTime"] == BEFORE


@pytest.mark.parametrize(
    ("lacks", "status", "reason"),
    [
        pytest.param([], False, "AsRequested", id="nothing"),
        pytest.param([LACK], True, "PortsNotSupported", id="one"),
        pytest.param([LACK, ("PortsNotSupported", "another")], True, "PortsNotSupported", id="two of a kind"),
        pytest.param([LACK, ("NoNodes", "no node")], True, "Multiple", id="several"),
    ],
)
def test_what_is_lacking_is_one_condition(lacks: list[tuple[str, str]], status: bool, reason: str) -> None:  # noqa: FBT001
    said = conditions.degraded(lacks)
    assert (said.status, said.reason) == (status, reason)
    assert all(message in said.message for _, message in lacks)


def test_a_failure_leaves_what_serves_serving() -> None:
    [only] = conditions.failing("Infrastructure", "no capacity", served=True, final=False)
    assert (only.type, only.status, only.reason) == (DEGRADED, True, "Infrastructure")


@pytest.mark.parametrize("final", [False, True], ids=["tried again", "until the Service changes"])
def test_a_failure_says_why_a_new_service_is_pending(final: bool) -> None:  # noqa: FBT001
    not_serving, goes_on = conditions.failing("Infrastructure", "no capacity", served=False, final=final)
    assert (not_serving.type, not_serving.status, not_serving.message) == (SERVING, False, "no capacity")
    assert (goes_on.type, goes_on.status) == (PROVISIONING, not final)


def test_a_paused_deletion_says_that_it_waits() -> None:
    said = [conditions.paused(one, "a/b") for one in (builders.service(), builders.service(builders.deleting()))]
    assert [one.reason for one in said] == ["Annotation", "DeletionWaits"]
    assert "until the annotation is gone" in said[1].message


def test_a_new_service_is_said_to_be_made_and_a_served_one_not() -> None:
    before, after = conditions.provisioning(), conditions.serving([], [])
    assert {one.type: one.status for one in before} == {SERVING: False, PROVISIONING: True}
    assert {one.type for one in after if one.is_trouble} == set()


def test_what_is_left_as_the_cloud_has_it_is_trouble_until_it_is_as_it_was_written() -> None:
    drifted, well = conditions.drifted("targets is without n1"), conditions.drifted("")
    assert drifted.is_trouble
    assert "targets is without n1" in drifted.message
    [entry] = conditions.entries(saying(drifted), [well], NOW)
    assert (entry["type"], entry["status"]) == (conditions.DRIFTED, "False")
    assert conditions.entries(saying(), [well], NOW) == ()
