"""The settings: their values, the messages for wrong ones, and what does not fit together."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ccm_lb.errors import ConfigError
from ccm_lb.settings import config, precedence
from ccm_lb.settings.config import Config
from ccm_lb.settings.precedence import Setting, Source

FIELDS = list(Config.model_fields)


def build(settings: Mapping[str, object] = MappingProxyType({}), source: Source = Source.FLAG) -> Config:
    complete = {"cloud_provider": "fakecloud", **settings}
    values = {name: Setting(value, source, "ccm.yaml") for name, value in complete.items()}
    return precedence.build(values, ["acme", "fakecloud"])


def complaint(settings: Mapping[str, object], source: Source = Source.FLAG) -> str:
    with pytest.raises(ConfigError) as caught:
        build(settings, source)
    return str(caught.value)


# ---- values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("15s", 15.0, id="seconds"),
        pytest.param("1m30s", 90.0, id="two-units"),
        pytest.param("1h1m1s", 3661.0, id="three-units"),
        pytest.param("500ms", 0.5, id="milliseconds"),
        pytest.param("250us", 0.00025, id="microseconds"),
        pytest.param("250µs", 0.00025, id="microseconds-in-greek"),
        pytest.param("1.5h", 5400.0, id="fraction"),
        pytest.param(".5s", 0.5, id="no-digit-before-the-point"),
        pytest.param("1.s", 1.0, id="no-digit-after-the-point"),
        pytest.param("30", 30.0, id="plain-number-as-text"),
        pytest.param(30, 30.0, id="integer-from-a-file"),
        pytest.param(0.25, 0.25, id="float-from-a-file"),
    ],
)
def test_a_duration_is_gos_form_or_seconds(text: object, expected: float) -> None:
    assert config.seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "15sec",
        "1m 30s",
        "-5s",
        True,
        None,
        [15],
        "inf",
        float("nan"),
        float("inf"),
        10**400,
        "9" * 400 + "s",
    ],
    ids=lambda value: repr(value)[:12],
)
def test_a_duration_in_another_form_is_refused(text: object) -> None:
    with pytest.raises(ConfigError, match="expected a duration"):
        build({"node_sync_debounce": text})


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(config.seconds(text), float)


@pytest.mark.parametrize(
    ("field", "given_value", "expected"),
    [
        pytest.param("leader_elect", "false", False, id="go-false"),
        pytest.param("leader_elect", "F", False, id="go-short-false"),
        pytest.param("leader_elect", "1", True, id="go-one"),
        pytest.param("leader_elect", False, False, id="yaml-false"),
        pytest.param("load_balancer_class", ("a", "b"), ("a", "b"), id="repeated-flag"),
        pytest.param("load_balancer_class", "a, example.com/b", ("a", "example.com/b"), id="comma-separated"),
        pytest.param("load_balancer_class", ["a,b", "c d"], ("a", "b", "c", "d"), id="lists-of-lists"),
        pytest.param("allow_addresses", "loopback, node", ("loopback", "node"), id="kinds-of-addresses"),
        pytest.param("cluster_name", "", None, id="empty-text-is-none"),
        pytest.param("kubeconfig", "", None, id="empty-path-is-none"),
        pytest.param("kubeconfig", "/a/b", Path("/a/b"), id="path"),
        pytest.param("kube_api_qps", "20", 20.0, id="qps"),
        pytest.param("bind_address", "::", "::", id="ipv6"),
        pytest.param("bind_address", "0:0:0:0:0:0:0:1", "::1", id="ipv6-long"),
        pytest.param("port", "0", 0, id="port-off"),
        pytest.param("node_sync_debounce", 0, 0.0, id="no-debounce"),
    ],
)
def test_a_value_is_taken_as_upstreams_users_write_it(field: str, given_value: object, expected: object) -> None:
    assert getattr(build({field: given_value}), field) == expected


def test_the_defaults_are_the_documented_ones() -> None:
    made = build().model_dump(exclude={"cloud_provider"}, exclude_none=True)
    assert made == {
        "load_balancer_class": (),
        "handle_unclassed": True,
        "allow_addresses": (),
        "concurrent_service_syncs": 64,
        "node_sync_debounce": 1.0,
        "resync_period": 300.0,
        "drift": "repair",
        "drift_period": 300.0,
        "delete_orphans_after": 0.0,
        "leader_elect": True,
        "leader_elect_lease_duration": 15.0,
        "leader_elect_renew_deadline": 10.0,
        "leader_elect_retry_period": 2.0,
        "leader_elect_resource_lock": "leases",
        "leader_elect_resource_name": "cloud-controller-manager",
        "leader_elect_resource_namespace": "kube-system",
        "bind_address": "0.0.0.0",
        "port": 10258,
        "secure_port": 0,
        "v": 0,
        "log_format": "text",
        "shutdown_grace": 8.0,
    }


def test_the_configuration_cannot_be_changed_once_made() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        build().v = 4  # type: ignore[misc]


# ---- wrong values


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        pytest.param("leader_elect", "nope", "got 'nope', expected true or false", id="bool"),
        pytest.param("port", "abc", "got 'abc', expected a port number from 0 to 65535", id="port-text"),
        pytest.param("port", 65536, "got 65536, expected a port number from 0 to 65535", id="port-too-high"),
        pytest.param("port", -1, "got -1, expected a port number", id="port-negative"),
        pytest.param("port", True, "got True, expected a port number", id="port-from-yaml-true"),
        pytest.param("secure_port", "1.5", "got '1.5', expected a port number", id="port-fraction"),
        pytest.param("concurrent_service_syncs", 0, "got 0, expected a whole number, 1 or more", id="no-workers"),
        pytest.param("kube_api_qps", 0, "got 0, expected a number above 0", id="qps-zero"),
        pytest.param("kube_api_qps", "inf", "got 'inf', expected a number above 0", id="qps-infinite"),
        pytest.param("kube_api_qps", True, "got True, expected a number above 0", id="qps-true"),
        pytest.param("kube_api_burst", 0, "got 0, expected a whole number, 1 or more", id="burst-zero"),
        pytest.param("v", 11, "got 11, expected a whole number from 0 to 10", id="verbosity"),
        pytest.param("log_format", "xml", "got 'xml', expected text or json", id="log-format"),
        pytest.param("leader_elect_resource_lock", "endpoints", "got 'endpoints', expected leases", id="lock"),
        pytest.param("leader_elect_resource_name", "", "got '', expected a name", id="lease-name"),
        pytest.param("bind_address", "localhost", "got 'localhost', expected an IP address", id="bind-address"),
        pytest.param("cluster_name", 5, "got 5, expected a text", id="yaml-number-for-text"),
        pytest.param("kubeconfig", 5, "got 5, expected the path of a file", id="yaml-number-for-path"),
        pytest.param("cloud_provider", 5, "got 5, expected the name of an installed backend", id="provider-number"),
        pytest.param("load_balancer_class", ["-x"], "got '-x', expected names such as", id="class-bad-start"),
        pytest.param(
            "load_balancer_class", ["Ex.com/x"], "got 'Ex.com/x', expected names such as", id="class-bad-prefix"
        ),
        pytest.param("load_balancer_class", ["x" * 64], "expected names such as", id="class-too-long"),
        pytest.param(
            "leader_elect_resource_name", "Mine", "got 'Mine', expected a name such as ccm-lb", id="lease-capital"
        ),
        pytest.param(
            "leader_elect_resource_name", "a/b", "got 'a/b', expected a name such as ccm-lb", id="lease-slash"
        ),
        pytest.param("leader_elect_resource_name", "", "got '', expected a name such as ccm-lb", id="lease-empty"),
        pytest.param("leader_elect_resource_name", "a" * 254, "expected a name such as ccm-lb", id="lease-too-long"),
        pytest.param(
            "leader_elect_resource_namespace", "a.b", "expected a name such as kube-system", id="namespace-dot"
        ),
        pytest.param("leader_elect_resource_namespace", "a" * 64, "expected a name such as", id="namespace-too-long"),
        pytest.param("hostname_suffix", "-x", "expected a DNS name such as lb.example.com", id="suffix-bad-start"),
        pytest.param("hostname_suffix", "a..b", "expected a DNS name such as lb.example.com", id="suffix-two-dots"),
        pytest.param("load_balancer_class", [5], "got 5, expected names such as", id="class-number"),
        pytest.param("load_balancer_class", {"a": 1}, "expected names such as", id="class-mapping"),
        pytest.param("resync_period", 0, "got 0, expected a duration above 0", id="resync-zero"),
        pytest.param("shutdown_grace", "-1", "got '-1', expected a duration", id="grace-negative"),
    ],
)
def test_a_wrong_value_is_named_with_what_was_expected(field: str, value: object, expected: str) -> None:
    said = complaint({field: value})
    assert said.startswith(f"{precedence.flag(field)}: {expected}") or (
        said.startswith(precedence.flag(field)) and expected in said
    )
    assert "\n" not in said


@pytest.mark.parametrize(
    ("source", "where"),
    [
        pytest.param(Source.FLAG, "--leader-elect: ", id="flag"),
        pytest.param(Source.ENV, "CCM_LB_LEADER_ELECT: ", id="environment"),
        pytest.param(Source.FILE, "ccm.yaml: leader-elect: ", id="file"),
        pytest.param(Source.DEFAULT, "leader_elect: ", id="default"),
    ],
)
def test_a_wrong_value_is_named_where_it_stands(source: Source, where: str) -> None:
    assert complaint({"leader_elect": "nope"}, source) == f"{where}got 'nope', expected true or false"


def test_all_wrong_values_are_said_at_once() -> None:
    assert complaint({"port": "a", "v": "b"}).count("expected") == 2


def test_a_missing_provider_is_answered_with_the_installed_ones() -> None:
    assert "(acme, fakecloud)" in complaint({"cloud_provider": ""})
    with pytest.raises(ConfigError, match=r"--cloud-provider is required.*\(none\)"):
        precedence.build({}, [])


# ---- what does not fit together


FILES: dict[str, Any] = {"tls_cert_file": "c.pem", "tls_private_key_file": "k.pem"}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({"leader_elect_lease_duration": 10}, "lease-duration (10s) must be longer than", id="lease-not-over-renew"),
        pytest.param({"leader_elect_lease_duration": "500ms"}, "lease-duration (0.5s) must be at least 1s", id="lease-under-a-second"),
        pytest.param({"leader_elect_retry_period": 9}, "renew-deadline (10s) must be longer than 1.2 times", id="renew-not-over-retry"),
        pytest.param({"tls_cert_file": "c.pem"}, "must be given together", id="certificate-without-key"),
        pytest.param(FILES, "--tls-cert-file has no effect without --secure-port", id="certificate-without-port"),
        pytest.param({"tls_private_key_file": "k.pem"}, "must be given together", id="key-without-certificate"),
        pytest.param({"port": 10258, "secure_port": 10258}, "--port and --secure-port are both 10258", id="same-port"),
        pytest.param({"kube_api_burst": 5}, "--kube-api-burst 5 needs --kube-api-qps", id="burst-without-qps"),
        pytest.param({"drift": "off", "delete_orphans_after": 1}, "no effect with --drift=off", id="orphans-unseen"),
        pytest.param({"handle_unclassed": False}, "give at least one --load-balancer-class", id="nothing-to-serve"),
    ],
)  # fmt: skip
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], expected: str) -> None:
    assert expected in complaint(settings)


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"leader_elect": False, "leader_elect_lease_duration": 1}, id="lease-times-without-election"),
        pytest.param({"leader_elect_renew_deadline": 2.5}, id="renew-just-over-retry"),
        pytest.param({"secure_port": 10259, **FILES}, id="secure-with-files"),
        pytest.param({"secure_port": 10259}, id="secure-without-files"),
        pytest.param({"port": 0, "secure_port": 0}, id="both-ports-off"),
        pytest.param({"kube_api_qps": 5, "kube_api_burst": 5}, id="burst-with-qps"),
        pytest.param({"handle_unclassed": False, "load_balancer_class": "x"}, id="classes-only"),
        pytest.param({"drift": "report", "delete_orphans_after": 1}, id="orphans-without-repair"),
    ],
)
def test_settings_that_fit_together_are_taken(settings: dict[str, object]) -> None:
    build(settings)


# ---- names, files, reference


@pytest.mark.parametrize("field", FIELDS)
def test_every_setting_says_what_it_is(field: str) -> None:
    info = Config.model_fields[field]
    assert info.description
    assert info.description.endswith(".")
    assert config.kind(field).expects
    assert config.group(field)


def test_the_settings_of_a_group_stand_together() -> None:
    groups = [config.group(field) for field in FIELDS]
    assert sum(one != other for one, other in itertools.pairwise(groups)) == len(set(groups)) - 1


def test_a_file_names_settings_as_the_flags_do_and_null_is_not_given() -> None:
    content = {"leader-elect": False, "v": 2, "kubeconfig": None}
    assert precedence.from_file(content, "ccm.yaml") == {"leader_elect": False, "v": 2}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("leader-elct", "ccm.yaml: leader-elct: unknown key, did you mean leader-elect?", id="typo"),
        pytest.param(
            "leader_elect", "ccm.yaml: leader_elect: unknown key, did you mean leader-elect?", id="underscore"
        ),
        pytest.param("zzz", "ccm.yaml: zzz: unknown key", id="nothing-like-it"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(name: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        precedence.from_file({name: True}, "ccm.yaml")
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        pytest.param("kubeconfig", None, "", id="none"),
        pytest.param("leader_elect", True, "true", id="bool"),
        pytest.param("load_balancer_class", ("a", "b"), "a,b", id="list"),
        pytest.param("resync_period", 300.0, "300s", id="duration"),
        pytest.param("kube_api_qps", 20.0, "20", id="number"),
        pytest.param("kubeconfig", Path("/a"), "/a", id="path"),
    ],
)
def test_a_value_is_shown_as_it_would_be_written(field: str, value: object, text: str) -> None:
    assert precedence.as_text(field, value) == text


def test_the_reference_page_is_the_one_that_the_settings_give() -> None:
    page = Path(__file__).parents[3] / "docs/reference/configuration.md"
    assert page.read_text(encoding="utf-8") == precedence.reference(), (
        "run: ccm-lb reference > docs/reference/configuration.md"
    )


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        pytest.param({}, 10258, id="default"),
        pytest.param({"secure_port": 10258}, 0, id="https-in-its-place"),
        pytest.param({"secure_port": 10259}, 10258, id="https-beside-it"),
        pytest.param({"port": 8080, "secure_port": 10258}, 8080, id="both-given"),
    ],
)
def test_https_on_the_default_port_takes_the_place_of_plain_http(settings: dict[str, object], plain: int) -> None:
    assert build(settings).http_port == plain
