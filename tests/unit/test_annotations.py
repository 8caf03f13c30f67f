"""The annotations that the product reads."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.annotations import HealthCheckProtocol, Options, ProxyProtocol
from ccm_lb.errors import TerminalError
from ccm_lb.objects import IPMode, ServicePort
from ccm_lb.testing import builders

NONE, V1, V2 = ProxyProtocol


def options(name: str, value: str | None) -> Options:
    return ccm_annotations.parse(builders.service(builders.annotated(name, value)))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, None), ("VIP", IPMode.VIP), ("Proxy", IPMode.PROXY), ("Router", "Router"), ("proxy", "proxy")],
)
def test_the_ip_mode_is_asked_for_or_left_open_known_or_not(value: str | None, expected: str | None) -> None:
    found = options(ccm_annotations.IP_MODE, value).ip_mode
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        (ccm_annotations.PROXY_PROTOCOL, "v2", "proxy_protocol", V2),
        (ccm_annotations.PROXY_PROTOCOL, "none", "proxy_protocol", NONE),
        (ccm_annotations.PROXY_PROTOCOL_PORTS, "80, 443,", "proxy_protocol_ports", frozenset({80, 443})),
        (ccm_annotations.PROXY_PROTOCOL_PORTS, "", "proxy_protocol_ports", frozenset()),
        (ccm_annotations.HEALTH_CHECK_PROTOCOL, "tcp", "health_check_protocol", HealthCheckProtocol.TCP),
        (ccm_annotations.HOSTNAME, "web.example.com", "hostname", "web.example.com"),
    ],
)
def test_a_right_value_is_read(name: str, value: str, field: str, expected: Any) -> None:
    assert getattr(options(name, value), field) == expected
    assert getattr(options(name, None), field) is None


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (ccm_annotations.PROXY_PROTOCOL, "v3", "none or v1 or v2"),
        (ccm_annotations.PROXY_PROTOCOL, "V2", "none or v1 or v2"),
        (ccm_annotations.PROXY_PROTOCOL_PORTS, "http", "port numbers separated by commas"),
        (ccm_annotations.PROXY_PROTOCOL_PORTS, "80;443", "port numbers separated by commas"),
        (ccm_annotations.PROXY_PROTOCOL_PORTS, "70000", "port numbers separated by commas"),
        (ccm_annotations.HEALTH_CHECK_PROTOCOL, "udp", "tcp or http"),
        (ccm_annotations.HOSTNAME, "not a name", "a DNS name such as web.example.com"),
        (ccm_annotations.HOSTNAME, "", "a DNS name such as web.example.com"),
        (ccm_annotations.KEEP, "True", "true or false"),
        (ccm_annotations.ADOPT, "", "what the cloud calls it, without spaces"),
        (ccm_annotations.ADOPT, "lb 1", "what the cloud calls it, without spaces"),
        (ccm_annotations.ADDRESS_POOLS, "a,,b", "names separated by commas"),
        (ccm_annotations.ADDRESSES, "web", "an IP address, or one of each family separated by a comma"),
        (ccm_annotations.ADDRESSES, "10.0.0.1,10.0.0.2", "an IP address, or one of each family separated by a comma"),
        (ccm_annotations.PAUSED, "yes", "true or false"),
        (ccm_annotations.PAUSED, "", "true or false"),
    ],
)
def test_a_wrong_value_names_annotation_value_and_what_is_allowed(name: str, value: str, expected: str) -> None:
    with pytest.raises(TerminalError) as caught:
        options(name, value)
    assert str(caught.value) == f'annotation {name} is "{value}": expected {expected}; remove it for the default'


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False), (None, False)])
def test_a_wish_is_there_or_not(value: str | None, expected: bool) -> None:  # noqa: FBT001
    assert options(ccm_annotations.PAUSED, value).paused is expected
    assert options(ccm_annotations.KEEP, value).keep is expected


def test_pools_are_named_each_once() -> None:
    assert options(ccm_annotations.ADDRESS_POOLS, "a, b,a").address_pools == ("a", "b")
    assert options(ccm_annotations.ADDRESS_POOLS, None).address_pools == ()


@pytest.mark.parametrize(
    ("field", "annotation", "expected"),
    [
        pytest.param("", None, (), id="none"),
        pytest.param("203.0.113.7", None, ("203.0.113.7",), id="the field"),
        pytest.param(" 2001:DB8::0:7 ", None, ("2001:db8::7",), id="in its one spelling"),
        pytest.param("auto", None, ("auto",), id="what is none is the backend's to refuse"),
        pytest.param("", "203.0.113.7, 2001:db8::7", ("203.0.113.7", "2001:db8::7"), id="the annotation"),
        pytest.param("2001:DB8::7", "203.0.113.7,2001:db8::7", ("203.0.113.7", "2001:db8::7"), id="both agree"),
    ],
)
def test_addresses_are_asked_for_by_field_or_annotation(
    field: str, annotation: str | None, expected: tuple[str, ...]
) -> None:
    tweaks = {"spec": {"loadBalancerIP": field}}, builders.annotated(ccm_annotations.ADDRESSES, annotation)
    assert ccm_annotations.parse(builders.service(*tweaks)).addresses == expected


def test_field_and_annotation_that_disagree_about_the_address_are_both_named() -> None:
    tweaks = {"spec": {"loadBalancerIP": "203.0.113.8"}}, builders.annotated(ccm_annotations.ADDRESSES, "203.0.113.7")
    with pytest.raises(TerminalError, match=r'"203\.0\.113\.7", and spec\.loadBalancerIP is "203\.0\.113\.8"'):
        ccm_annotations.parse(builders.service(*tweaks))


@pytest.mark.parametrize(
    ("given", "port", "default", "expected"),
    [
        pytest.param(Options(), ServicePort(port=80), NONE, NONE, id="nothing is said"),
        pytest.param(Options(), ServicePort(port=80), V2, V2, id="the default"),
        pytest.param(Options(proxy_protocol=V1), ServicePort(port=80), V2, V1, id="the annotation goes before"),
        pytest.param(Options(proxy_protocol=NONE), ServicePort(port=80), V2, NONE, id="switched off"),
        pytest.param(
            Options(proxy_protocol_ports=frozenset({80})), ServicePort(port=80), V2, V2, id="a port that is named"
        ),
        pytest.param(
            Options(proxy_protocol_ports=frozenset({80})), ServicePort(port=22), V2, NONE, id="one that is not"
        ),
        pytest.param(Options(proxy_protocol=V2), ServicePort(port=53, protocol="UDP"), V2, NONE, id="UDP has none"),
    ],
)
def test_proxy_protocol_holds_per_port(
    given: Options, port: ServicePort, default: ProxyProtocol, expected: ProxyProtocol
) -> None:
    assert given.proxy_protocol_on(port, default) is expected


@pytest.mark.parametrize(("value", "unknown"), [(None, ()), ("80", ()), ("80,443,22", (22, 443))])
def test_ports_that_the_service_does_not_have_are_found(value: str | None, unknown: tuple[int, ...]) -> None:
    service = builders.service(builders.annotated(ccm_annotations.PROXY_PROTOCOL_PORTS, value))
    assert ccm_annotations.unknown_ports(service) == unknown


# ---- who may connect


def ranges(field: list[str], annotation: str | None = None) -> tuple[str, ...]:
    tweak = builders.annotated(ccm_annotations.SOURCE_RANGES, annotation)
    return ccm_annotations.source_ranges(builders.service({"spec": {"loadBalancerSourceRanges": field}}, tweak))


@pytest.mark.parametrize(
    ("field", "annotation", "expected"),
    [
        pytest.param([], None, (), id="none"),
        pytest.param([], " ", (), id="an empty annotation"),
        pytest.param(["10.0.0.0/8"], None, ("10.0.0.0/8",), id="the field"),
        pytest.param([], "10.0.0.0/8,192.0.2.0/24", ("10.0.0.0/8", "192.0.2.0/24"), id="the annotation"),
        pytest.param(["10.0.0.0/8"], "192.0.2.0/24", ("10.0.0.0/8",), id="the field wins"),
        pytest.param(["10.0.0.0/8"], "nonsense", ("10.0.0.0/8",), id="the field wins over nonsense"),
        pytest.param([" 10.0.0.0/8 "], None, ("10.0.0.0/8",), id="spaces in the field"),
        pytest.param([], " 10.0.0.0/8 ,\t2001:db8::/32 ", ("10.0.0.0/8", "2001:db8::/32"), id="spaces"),
        pytest.param(["10.1.2.3/8", "10.0.0.0/8"], None, ("10.0.0.0/8",), id="bits beyond the prefix; twice"),
        pytest.param(["010.000.0.008/32"], None, ("10.0.0.8/32",), id="leading zeros, as Go reads them"),
        pytest.param(["2001:DB8:0:0::1/64"], None, ("2001:db8::/64",), id="IPv6"),
        pytest.param(["::ffff:192.0.2.9/120"], None, ("192.0.2.0/24",), id="IPv4 inside IPv6"),
        pytest.param(["::ffff:0.0.0.0/90"], None, ("::ffc0:0:0/90",), id="wider than IPv4 inside IPv6"),
        pytest.param(["2001:db8::1/128"], None, ("2001:db8::1/128",), id="one address"),
    ],
)
def test_source_ranges_are_read_as_upstream_reads_them(
    field: list[str], annotation: str | None, expected: tuple[str, ...]
) -> None:
    assert ranges(field, annotation) == expected


@pytest.mark.parametrize(
    "wrong",
    ["nonsense", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/8,", ",", "10.0.0/8", "10.0.0.0/255.0.0.0", "::/129", "fe80::1%a/64",
     "10..0.0/8", "10.0.0.0/" + "8" * 5000],
)  # fmt: skip
def test_a_wrong_range_is_an_error_and_not_left_out(wrong: str) -> None:
    for field, annotation in (([], wrong), (["10.0.0.0/8", wrong], None)):
        with pytest.raises(TerminalError, match=r"expected ranges such as 10\.0\.0\.0/8") as caught:
            ranges(field, annotation)
        assert wrong in str(caught.value)
        assert (ccm_annotations.SOURCE_RANGES if annotation else "spec.loadBalancerSourceRanges") in str(caught.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [((), False), (("0.0.0.0/0",), False), (("0.0.0.0/0", "::/0"), False), (("0.0.0.0/0", "10.0.0.0/8"), True)],
)
def test_a_range_of_everybody_keeps_nobody_out(given: tuple[str, ...], *, expected: bool) -> None:
    assert ccm_annotations.restricts(given) is expected
