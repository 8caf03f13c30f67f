"""What a Service asks for and nobody carries out is named; what is carried out, or means nothing to a load balancer, is not."""

from __future__ import annotations

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.base import Honoured
from ccm_lb.controller import unheeded
from ccm_lb.objects import LoadBalancerIngress
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak

EVERYTHING = frozenset(Honoured)
AFFINITY = {"spec": {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}}
LOCAL = {"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31555}}
ADDRESS = {"spec": {"loadBalancerIP": "203.0.113.77"}}
HINT = {"spec": {"ports": [{"port": 80, "nodePort": 30080, "appProtocol": "kubernetes.io/h2c"}]}}
RANGES = {"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}


def annotated(name: str, value: str = "true") -> Tweak:
    return builders.annotated(name, value)


ASKED = (ADDRESS, annotated(ccm_annotations.ADDRESSES, "203.0.113.77"))


def told(*tweaks: Tweak, honours: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    ingress = [LoadBalancerIngress(ip="203.0.113.1")]
    return [(one.reason, one.message) for one in unheeded.notices(builders.service(*tweaks), ingress, honours)]


@pytest.mark.parametrize(
    ("tweak", "reason", "words"),
    [
        pytest.param(AFFINITY, "FieldIgnored", ["spec.sessionAffinity is ClientIP"], id="affinity"),
        pytest.param(LOCAL, "FieldIgnored", ["spec.externalTrafficPolicy is Local", "31555"], id="Local"),
        pytest.param(ADDRESS, "FieldIgnored", ["spec.loadBalancerIP is 203.0.113.77"], id="an address"),
        pytest.param(HINT, "AppProtocolIgnored", ["kubernetes.io/h2c for port 80", "hint"], id="appProtocol"),
        pytest.param(
            annotated(ccm_annotations.PROXY_PROTOCOL, "v2"), "AnnotationIgnored", ['"v2"'], id="PROXY protocol"
        ),
        pytest.param(
            annotated(ccm_annotations.PROXY_PROTOCOL_PORTS, "80"), "AnnotationIgnored", ['"80"'], id="its ports"
        ),
        pytest.param(annotated(ccm_annotations.ADDRESSES, "203.0.113.77"), "AnnotationIgnored", ["77"], id="addresses"),
        pytest.param(annotated(ccm_annotations.ADDRESS_POOLS, "a"), "AnnotationIgnored", ['"a"'], id="a pool"),
        pytest.param(
            annotated(ccm_annotations.ADOPT, "lb-1"), "AnnotationIgnored", ["made one of its own"], id="adoption"
        ),
        pytest.param(annotated(ccm_annotations.KEEP), "AnnotationIgnored", ["deletion waits"], id="keeping"),
        pytest.param(
            annotated(ccm_annotations.HEALTH_CHECK_PROTOCOL, "http"),
            "AnnotationIgnored",
            ['"http"'],
            id="health checks",
        ),
    ],
)
def test_what_the_backend_does_not_say_that_it_carries_out_is_named(
    tweak: Tweak, reason: str, words: list[str]
) -> None:
    [(found, message)] = told(tweak)
    assert found == reason
    for word in words:
        assert word in message
    assert [one for one, _ in told(tweak, honours=EVERYTHING)] == (["AddressNotGiven"] if tweak in ASKED else [])


@pytest.mark.parametrize("honours", [frozenset(), EVERYTHING], ids=["by nobody", "by the backend"])
@pytest.mark.parametrize(
    "tweak",
    [
        pytest.param({"spec": {"loadBalancerIP": "203.0.113.1"}}, id="the field"),
        pytest.param(annotated(ccm_annotations.ADDRESSES, "203.0.113.1"), id="the annotation"),
        pytest.param(annotated(ccm_annotations.KEEP, "false"), id="what is declined"),
    ],
)
def test_what_is_as_it_was_asked_for_is_not_named(tweak: Tweak, honours: frozenset[str]) -> None:
    assert told(tweak, honours=honours) == []


def test_an_address_that_was_not_given_is_told_beside_the_one_that_is_kept() -> None:
    [(reason, message)] = told(ADDRESS, honours=EVERYTHING)
    assert reason == "AddressNotGiven"
    assert "203.0.113.77 was asked for, but the load balancer has 203.0.113.1 and keeps it" in message
    assert list(unheeded.notices(builders.service(ADDRESS), [], EVERYTHING)) == []


def test_a_service_that_asks_for_nothing_of_it_is_told_nothing() -> None:
    assert told() == []
    assert told(annotated(ccm_annotations.PROXY_PROTOCOL, "none")) == []


def test_the_address_that_was_asked_for_and_is_there_is_nothing_to_tell() -> None:
    assert told({"spec": {"loadBalancerIP": "203.0.113.1"}}) == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ccm-lb.dev/proxy-protcol", "did you mean ccm-lb.dev/proxy-protocol?"),
        ("ccm-lb.dev/ip_mode", "did you mean ccm-lb.dev/ip-mode?"),
        ("ccm-lb.io/ip-mode", "did you mean ccm-lb.dev/ip-mode?"),
        ("ip-mode", "did you mean ccm-lb.dev/ip-mode?"),
        ("ccm-lb.dev/zzz", "expected one of ccm-lb.dev/address-pools, ccm-lb.dev/addresses, "),
        ("service.beta.kubernetes.io/load-balancer-source-range", f"did you mean {ccm_annotations.SOURCE_RANGES}?"),
        ("service.kubernetes.io/load-balancer-source-ranges", f"did you mean {ccm_annotations.SOURCE_RANGES}?"),
    ],
)
def test_a_slip_of_the_pen_is_told_with_what_was_meant(name: str, meant: str) -> None:
    [(reason, message)] = told(annotated(name), honours=EVERYTHING)
    assert reason == "AnnotationIgnored"
    assert message.startswith(f"annotation {name} is not known")
    assert meant in message


def test_annotations_for_other_clouds_are_named_together() -> None:
    names = [
        "service.beta.kubernetes.io/aws-load-balancer-internal",
        "networking.gke.io/load-balancer-type",
        "metallb.io/loadBalancerIPs",
        "service.beta.kubernetes.io/azure-pip-source",
    ]
    [(reason, message)] = told(*map(annotated, names), honours=EVERYTHING)
    assert reason == "AnnotationIgnored"
    assert all(name in message for name in names)


def test_of_very_many_some_are_named_and_the_others_counted() -> None:
    names = [f"service.beta.kubernetes.io/aws-load-balancer-{number:03}" for number in range(30)]
    [(_, message)] = told(*map(annotated, names))
    assert message.endswith(f"{names[9]} and 20 more")


@pytest.mark.parametrize("name", ["service.beta.kubernetes.io/acme-internal", "service.beta.kubernetes.io/*"])
def test_an_annotation_that_the_backend_reads_is_not_named(name: str) -> None:
    assert told(annotated("service.beta.kubernetes.io/acme-internal"), honours=frozenset({name})) == []


@pytest.mark.parametrize(
    "tweak",
    [
        *map(
            annotated,
            [
                "service.kubernetes.io/topology-mode",
                "service.alpha.kubernetes.io/tolerate-unready-endpoints",
                "external-dns.alpha.kubernetes.io/hostname",
                "kubectl.kubernetes.io/last-applied-configuration",
                "example.com/team",
            ],
        ),
        {"spec": {"internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose"}},
        {"spec": {"publishNotReadyAddresses": True, "externalIPs": ["192.0.2.1"]}},
        RANGES,
    ],
)
def test_what_is_no_load_balancers_business_is_not_named(tweak: Tweak) -> None:
    assert told(tweak) == []


@pytest.mark.parametrize(
    ("annotation", "said"), [("10.0.0.0/8", False), ("192.0.2.0/24", True), ("nonsense", True), ("", True)]
)
def test_an_annotation_of_ranges_that_the_field_overrules_is_named(annotation: str, *, said: bool) -> None:
    found = told(RANGES, annotated(ccm_annotations.SOURCE_RANGES, annotation))
    assert [reason for reason, _ in found] == ["AnnotationIgnored"] * said
