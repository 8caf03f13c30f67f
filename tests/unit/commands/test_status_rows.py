"""What `ccm-lb status` says, decided from Services, nodes and the leader's words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.commands import tables
from ccm_lb.commands.status import rows
from ccm_lb.commands.status.rows import Cluster, Leader, Progress, Row, State
from ccm_lb.controller.predicates import Scope
from ccm_lb.objects import EXCLUDE_LABEL, Node, Service
from ccm_lb.testing import builders

SCOPE = Scope()
SERVED = builders.published({"ip": "203.0.113.1", "ipMode": "Proxy"})
SILENT = Leader("", silent="nobody holds the Lease")


def condition(name: str, status: str, message: str) -> builders.Tweak:
    return {"status": {"conditions": [{"type": name, "status": status, "reason": "X", "message": message}]}}


def seen(
    *services: Service,
    leader: Leader | None = None,
    nodes: tuple[Node, ...] | None = None,
    warnings: Mapping[str, str] | None = None,
    scope: Scope = SCOPE,
) -> tuple[Row, ...]:
    cluster = Cluster(services, builders.nodes() if nodes is None else nodes, warnings or {})
    return rows.rows(cluster, leader or Leader("pod-1"), scope, lambda _: 90.0)


def knowing(**progress: Any) -> Leader:
    return Leader("pod-1", SCOPE, {"lb/web": Progress(**progress)})


@pytest.mark.parametrize(
    ("tweaks", "progress", "expected"),
    [
        pytest.param([SERVED], Progress(), State.SERVED, id="it has an address"),
        pytest.param([], Progress(), State.PENDING, id="it has none"),
        pytest.param([SERVED], Progress("failed", "x", 1), State.FAILING, id="the last attempt failed"),
        pytest.param([SERVED], Progress("refused", "x"), State.FAILING, id="it needs a change"),
        pytest.param([], Progress("waiting", "x"), State.WAITING, id="the cloud needs time"),
        pytest.param([builders.finalizers(), builders.deleting()], Progress(), State.DELETING, id="it is to go"),
        pytest.param(
            [builders.finalizers(), builders.of_type("ClusterIP")], Progress(), State.DELETING, id="another type"
        ),
        pytest.param(
            [SERVED, builders.annotated(ccm_annotations.PAUSED, "true")], Progress(), State.PAUSED, id="it is paused"
        ),
        pytest.param(
            [SERVED, condition("LoadBalancerDegraded", "True", "one port")], Progress(), State.DEGRADED, id="degraded"
        ),
        pytest.param(
            [SERVED, condition("LoadBalancerServing", "True", "well")], Progress(), State.SERVED, id="it says it serves"
        ),
    ],
)
def test_the_state_is_one_word(tweaks: list[builders.Tweak], progress: Progress, expected: State) -> None:
    assert rows.state_of(builders.service(*tweaks), progress, SCOPE) is expected


def test_a_service_of_another_class_is_not_shown() -> None:
    other = builders.service(builders.of_class("example.com/other"))
    assert seen(other) == ()
    assert len(seen(other, scope=Scope(frozenset({"example.com/other"})))) == 1


def test_services_are_sorted_by_their_names() -> None:
    names = [builders.service(builders.named(name)) for name in ("b", "a")]
    assert [one.service for one in seen(*names)] == ["lb/a", "lb/b"]


def test_nodes_are_counted_in_and_out() -> None:
    out = builders.node("n4", builders.labelled(EXCLUDE_LABEL, "true"))
    (row,) = seen(builders.service(), nodes=(*builders.nodes(), out))
    assert row.as_json()["nodes"] == {"in": 3, "out": 1}


def test_the_leader_knows_better_than_an_event() -> None:
    warned = {builders.SERVICE_UID: "SyncLoadBalancerFailed: old"}
    (row,) = seen(builders.service(), leader=knowing(outcome="failed", reason="quota", failures=3), warnings=warned)
    assert row.reason == "quota"
    (row,) = seen(builders.service(), leader=Leader("pod-1"), warnings=warned)
    assert row.reason == ""
    (row,) = seen(builders.service(), leader=SILENT, warnings=warned)
    assert row.reason == "SyncLoadBalancerFailed: old"


def test_an_old_warning_says_nothing_of_a_service_that_is_served() -> None:
    (row,) = seen(builders.service(SERVED), leader=SILENT, warnings={builders.SERVICE_UID: "old"})
    assert row.reason == ""


def test_a_condition_is_a_reason() -> None:
    (row,) = seen(builders.service(SERVED, condition("LoadBalancerDegraded", "True", "one port")), leader=SILENT)
    assert row.reason == "one port"


def test_json_says_null_where_nobody_was_asked() -> None:
    known, unknown = seen(builders.service(SERVED))[0].as_json(), seen(builders.service(), leader=SILENT)[0].as_json()
    assert list(known) == list(unknown) == [
        "service", "state", "addresses", "nodes", "ageSeconds", "loadBalancerClass", "lastError", "failures", "retryInSeconds",
        "queuedSeconds", "workingSeconds",
    ]  # fmt: skip
    assert known["addresses"] == [{"address": "203.0.113.1", "ipMode": "Proxy"}]
    assert (known["failures"], unknown["failures"]) == (0, None)
    assert json.dumps(known)


def test_the_table_fits_a_hundred_columns_and_wide_cuts_nothing() -> None:
    long = builders.service(
        {"metadata": {"namespace": "n" * 63, "name": "s" * 63}},
        builders.published({"ip": "2001:db8:1111:2222:3333:4444:5555:6666"}, {"hostname": "h" * 200}),
    )
    leader = Leader("pod-1", SCOPE, {str(long.key): Progress("failed", "e" * 300, 2, retry_in=300.0)})
    found = seen(long, builders.service(SERVED), leader=leader, nodes=tuple(map(builders.node, ("n1", "n2"))))
    text = list(rows.lines(found, leader, SCOPE))
    assert max(map(len, text)) <= 100
    assert text[0].split() == ["SERVICE", "STATE", "ADDRESS", "IPMODE", "NODES", "AGE", "RETRY"]
    wide = "\n".join(rows.lines(found, leader, SCOPE, wide=True))
    assert "e" * 300 in wide
    assert "s" * 63 in wide
    assert "h" * 200 in wide


@pytest.mark.parametrize(
    ("leader", "shown"),
    [
        pytest.param(SILENT, "?", id="nobody was asked"),
        pytest.param(Leader("pod-1"), "-", id="nothing is due"),
        pytest.param(knowing(retry_in=150.0), "2m", id="in a delay"),
        pytest.param(knowing(queued=0.1), "now", id="waits for a worker"),
        pytest.param(knowing(working=0.1, retry_in=3.0), "now", id="is worked on"),
    ],
)
def test_the_next_retry(leader: Leader, shown: str) -> None:
    _, line, *_ = rows.lines(seen(builders.service(), leader=leader), leader, SCOPE)
    assert line.split()[-1] == shown
    _, line, *_ = rows.lines(seen(builders.service(), leader=leader), leader, SCOPE, wide=True)
    assert ("?" in line) is (shown == "?")


def test_what_is_missing_without_the_leader_is_said() -> None:
    *_, missing, classes = rows.lines((), SILENT, SCOPE)
    assert "nobody holds the Lease" in missing
    assert "--load-balancer-class" in classes
    assert "--load-balancer-class" not in "".join(rows.lines((), SILENT, Scope(frozenset({"c"}))))
    assert list(rows.lines((), Leader("pod-1"), SCOPE)) == ["no Service asks for a load balancer"]


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0s"), (119.0, "119s"), (120.0, "2m"), (7200.0, "2h"), (172800.0, "2d")]
)
def test_durations_are_kubectls(seconds: float, said: str) -> None:
    assert tables.duration(seconds) == said
