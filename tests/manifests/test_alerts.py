"""The alerts: each has its page, each fires on the series of its failure and is silent on healthy ones (promtool's own test runner)."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.docs import pages
from tests.docs.reference import families
from tests.manifests.rendering import MANIFESTS

Json = dict[str, Any]

RULES: Json = yaml.safe_load((MANIFESTS / "components" / "alerts" / "prometheusrule.yaml").read_text())["spec"]
ALERTS: dict[str, Json] = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
MINUTES = 60

HEALTHY = {
    'ccm_lb_build_info{version="0.1.0"}': "1x60",
    'leader_election_master_status{name="cloud-controller-manager", pod="a"}': "1x60",
    'leader_election_master_status{name="cloud-controller-manager", pod="b"}': "0x60",
    'ccm_lb_services{state="served"}': "10x60",
    'ccm_lb_services{state="failing"}': "0x60",
    "ccm_lb_services_longest_wait_seconds": "0x60",
    'ccm_lb_cloud_requests_total{code="200", method="GET"}': "0+10x60",
    'rest_client_requests_total{code="200", method="GET", host="api"}': "0+30x60",
    "ccm_lb_watch_restarts_total": "0x60",
    'workqueue_depth{name="service"}': "0x60",
    'ccm_lb_drift_total{action="repaired"}': "0x60",
    "ccm_lb_orphaned_load_balancers": "0x60",
}


class Failure(NamedTuple):
    """The series of a failure, in promtool's notation, over the healthy ones; None takes one away."""

    alert: str
    series: dict[str, str | None]


FAILURES = [
    Failure("CcmLbDown", dict.fromkeys(HEALTHY)),
    Failure("CcmLbNoLeader", {'leader_election_master_status{name="cloud-controller-manager", pod="a"}': "0x60"}),
    Failure("CcmLbServicesFailing", {'ccm_lb_services{state="failing"}': "0x10 2x50"}),
    Failure("CcmLbServicePendingTooLong", {"ccm_lb_services_longest_wait_seconds": "0+60x60"}),
    Failure("CcmLbCloudThrottled", {'ccm_lb_cloud_requests_total{code="429", method="POST"}': "0+3x60"}),
    Failure("CcmLbCloudUnreachable", {'ccm_lb_cloud_requests_total{code="error", method="GET"}': "0+20x60"}),
    Failure("CcmLbCredentialRefused", {'ccm_lb_cloud_requests_total{code="401", method="GET"}': "0+1x60"}),
    Failure("CcmLbWatchRestarts", {"ccm_lb_watch_restarts_total": "0+1x60"}),
    Failure("CcmLbQueueNotEmptying", {'workqueue_depth{name="service"}': "3x60"}),
    # As of a cloud that changes it back after each repair, which is answered more and more slowly.
    Failure("CcmLbDriftRepeated", {'ccm_lb_drift_total{action="repaired"}': "0x5 1x4 2x4 3x10 4x20 5x20"}),
    Failure("CcmLbOrphans", {"ccm_lb_orphaned_load_balancers": "0x10 1x50"}),
]

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)


def fired(series: dict[str, str | None], folder: Path) -> set[str]:
    """The alerts that fire within an hour of these series."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
    given = [{"series": name, "values": values} for name, values in series.items() if values is not None]
    firing = set()
    for alert in ALERTS:
        test = {
            "rule_files": ["rules.yaml"],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": given,
                    "alert_rule_test": [{"alertname": alert, "eval_time": f"{MINUTES}m", "exp_alerts": []}],
                }
            ],
        }
        (folder / "test.yaml").write_text(yaml.safe_dump(test))
        done = subprocess.run(
            ["promtool", "test", "rules", "test.yaml"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            assert "exp:" in done.stdout + done.stderr, done.stdout + done.stderr
            firing.add(alert)
    return firing


@needs_promtool
def test_the_rules_are_ones_that_prometheus_takes(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    done = subprocess.run(
        ["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_nobody_is_woken_while_all_is_well(tmp_path: Path) -> None:
    assert fired(dict(HEALTHY), tmp_path) == set()


@needs_promtool
def test_a_load_balancer_that_is_changed_now_and_then_wakes_nobody(tmp_path: Path) -> None:
    seldom = {'ccm_lb_drift_total{action="repaired"}': "0x10 1x20 2x30"}
    assert fired({**HEALTHY, **seldom}, tmp_path) == set()


@needs_promtool
@pytest.mark.parametrize("failure", FAILURES, ids=lambda one: one.alert)
def test_a_failure_wakes_somebody_with_its_own_alert_alone(failure: Failure, tmp_path: Path) -> None:
    assert fired({**HEALTHY, **failure.series}, tmp_path) == {failure.alert}


def test_each_alert_is_played() -> None:
    assert {one.alert for one in FAILURES} == set(ALERTS)


def test_each_alert_has_its_page() -> None:
    anchors = pages.read("docs/runbooks.md").anchors
    for name, rule in ALERTS.items():
        page, _, anchor = rule["annotations"]["runbook"].removeprefix("docs/").partition("#")
        assert (page, anchor) == ("runbooks.md", name.lower())
        assert anchor in anchors


def test_alerts_ask_for_metrics_that_exist() -> None:
    known = {family.name + ("_total" if family.type == "counter" else "") for family in families()}
    for name, rule in ALERTS.items():
        asked = set(re.findall(r"\b(?:ccm_lb|leader|workqueue|rest_client|service_controller)_\w+", rule["expr"]))
        assert asked, name
        assert asked <= known, name
