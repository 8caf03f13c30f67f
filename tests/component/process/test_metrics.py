"""What Prometheus gets to read."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ccm_lb.commands import main
from ccm_lb.dataplane import versions
from ccm_lb.dataplane.model import Confidence, Kind, Mode, ServiceProxy, unknown
from ccm_lb.process.metrics import Metrics

UPSTREAM = {
    "service_controller_loadbalancer_sync_total",
    "service_controller_nodesync_error_total",
    "service_controller_nodesync_latency_seconds_count",
    "service_controller_update_loadbalancer_host_latency_seconds_count",
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds_count",
    "workqueue_work_duration_seconds_count",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "workqueue_retries_total",
    "rest_client_requests_total",
    "rest_client_request_duration_seconds_count",
    "leader_election_master_status",
    "process_cpu_seconds_total",
}


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def metrics(time: Time) -> Metrics:
    return Metrics(time)


def samples(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(metrics: Metrics, name: str, /, **labels: str) -> float:
    return samples(metrics).get((name, frozenset(labels.items())), math.nan)


def test_upstreams_names_are_there(metrics: Metrics) -> None:
    metrics.kube_request("GET", "200", 0.1, "10.0.0.1:443")
    metrics.leading("cloud-controller-manager", holds=True)
    assert UPSTREAM - {name for name, _ in samples(metrics)} == set()


def test_no_series_says_when_it_was_created(metrics: Metrics) -> None:
    assert not [name for name, _ in samples(metrics) if name.endswith("_created")]


def test_two_sets_of_metrics_do_not_share_anything(metrics: Metrics) -> None:
    metrics.addressed(1.0)
    assert value(Metrics(), "ccm_lb_time_to_address_seconds_count") == 0


def test_the_build_is_named(metrics: Metrics) -> None:
    build = next(dict(labels) for name, labels in samples(metrics) if name == "ccm_lb_build_info")
    assert build.keys() == {
        "version",
        "kopf",
    }


@pytest.mark.parametrize(
    ("operation", "outcome", "syncs", "errors"),
    [
        pytest.param("ensure", "success", 0, 0, id="ensure"),
        pytest.param("update", "success", 1, 0, id="update"),
        pytest.param("update", "error", 1, 1, id="failed-update"),
        pytest.param("cleanup", "error", 0, 0, id="failed-cleanup"),
    ],
)
def test_a_reconcile_is_counted_by_operation_and_outcome(
    operation: str, outcome: str, syncs: int, errors: int, metrics: Metrics
) -> None:
    metrics.reconciled(operation, outcome, 2.0)
    assert value(metrics, "ccm_lb_reconcile_total", operation=operation, outcome=outcome) == 1
    assert value(metrics, "ccm_lb_reconcile_duration_seconds_sum", operation=operation) == 2.0
    assert value(metrics, "service_controller_loadbalancer_sync_total") == syncs
    assert value(metrics, "service_controller_update_loadbalancer_host_latency_seconds_count") == syncs
    assert value(metrics, "service_controller_nodesync_error_total") == errors


@pytest.mark.parametrize(("code", "shown"), [("409", "409"), ("error", "<error>")], ids=str)
def test_a_request_to_the_api_is_counted_by_its_answer(code: str, shown: str, metrics: Metrics) -> None:
    metrics.kube_request("PATCH", code, 0.25, "10.0.0.1:443")
    assert value(metrics, "rest_client_requests_total", code=shown, method="PATCH", host="10.0.0.1:443") == 1
    assert value(metrics, "rest_client_request_duration_seconds_sum", verb="PATCH", host="10.0.0.1:443") == 0.25


@pytest.mark.parametrize(
    ("code", "shown"), [(200, "200"), ("503", "503"), ("error", "error"), (None, "error")], ids=str
)
def test_a_request_to_the_cloud_is_counted_by_its_answer(code: int | str | None, shown: str, metrics: Metrics) -> None:
    metrics.cloud_request("POST", code, 0.5)
    assert value(metrics, "ccm_lb_cloud_requests_total", code=shown, method="POST") == 1
    assert value(metrics, "ccm_lb_cloud_request_duration_seconds_sum", method="POST") == 0.5


def test_the_queue_is_measured(metrics: Metrics) -> None:
    queue = metrics.workqueue
    queue.added()
    queue.depth(3)
    queue.retried()
    queue.started(0.5)
    queue.finished(1.5)
    assert value(metrics, "workqueue_adds_total", name="service") == 1
    assert value(metrics, "workqueue_depth", name="service") == 3
    assert value(metrics, "workqueue_retries_total", name="service") == 1
    assert value(metrics, "workqueue_queue_duration_seconds_sum", name="service") == 0.5
    assert value(metrics, "workqueue_work_duration_seconds_sum", name="service") == 1.5


def test_work_under_way_is_measured_while_it_lasts(metrics: Metrics, time: Time) -> None:
    def under_way() -> tuple[float, float]:
        longest = value(metrics, "workqueue_longest_running_processor_seconds", name="service")
        return value(metrics, "workqueue_unfinished_work_seconds", name="service"), longest

    assert under_way() == (0, 0)
    metrics.workqueue.started(0)
    time.now += 10
    metrics.workqueue.started(0)
    time.now += 5
    assert under_way() == (20, 15)
    metrics.workqueue.finished(5)
    assert under_way() == (15, 15)
    metrics.workqueue.finished(15)
    assert under_way() == (0, 0)
    metrics.workqueue.finished(1)  # nothing was under way: said twice, or begun before the metrics were there
    assert under_way() == (0, 0)


def test_the_rest_is_counted(metrics: Metrics) -> None:
    metrics.nodes_synced(3.0)
    metrics.addressed(2.0)
    metrics.cached(services=7, nodes=3)
    metrics.event_posted()
    metrics.event_dropped("spam")
    metrics.event_dropped("unreachable", 4)
    metrics.watch_restarted()
    metrics.leading("lease", holds=True)
    assert value(metrics, "service_controller_nodesync_latency_seconds_sum") == 3.0
    assert value(metrics, "ccm_lb_time_to_address_seconds_sum") == 2.0
    assert (value(metrics, "ccm_lb_cached_services"), value(metrics, "ccm_lb_cached_nodes")) == (7, 3)
    assert value(metrics, "ccm_lb_events_written_total") == 1
    assert value(metrics, "ccm_lb_events_dropped_total", reason="spam") == 1
    assert value(metrics, "ccm_lb_events_dropped_total", reason="unreachable") == 4
    assert value(metrics, "ccm_lb_watch_restarts_total") == 1
    metrics.contested("status")
    assert value(metrics, "ccm_lb_contests_total", field="status") == 1
    assert value(metrics, "leader_election_master_status", name="lease") == 1
    metrics.leading("lease", holds=False)
    assert value(metrics, "leader_election_master_status", name="lease") == 0


@pytest.mark.scenario("B52")
def test_the_service_proxy_is_shown_and_only_the_one_of_now(metrics: Metrics) -> None:
    def shown() -> list[dict[str, str]]:
        return [dict(labels) for name, labels in samples(metrics) if name == "ccm_lb_service_proxy_info"]

    assert shown() == [], "nobody has looked yet"
    metrics.service_proxy(
        ServiceProxy(Kind.KUBE_PROXY, Confidence.CERTAIN, Mode.IPVS, versions.parse("v1.31.2-minimal-eksbuild.3"))
    )
    assert shown() == [
        {"kind": "kube-proxy", "mode": "ipvs", "version": "1.31.2-minimal-eksbuild.3", "confidence": "certain"}
    ]
    metrics.service_proxy(unknown("forbidden"))
    assert shown() == [{"kind": "unknown", "mode": "", "version": "", "confidence": "unknown"}]


def test_the_buckets_are_upstreams(metrics: Metrics) -> None:
    found = [
        float(dict(labels)["le"])
        for name, labels in samples(metrics)
        if name == "service_controller_nodesync_latency_seconds_bucket"
    ]
    assert sorted(found) == [*(2.0**n for n in range(15)), math.inf]


def test_metrics_and_the_command_line_name_the_same_version(
    metrics: Metrics, capsys: pytest.CaptureFixture[str]
) -> None:
    main.execute(["version"])
    version = capsys.readouterr().out.split()[1]
    assert f'version="{version}"' in metrics.render().decode()
