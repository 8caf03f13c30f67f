"""The rule that chooses an ipMode, row by row."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm_lb import ipmode
from ccm_lb.ipmode import Delivery, Inputs, PortTraffic, Scope, ServiceProxyHint, Traffic
from ccm_lb.objects import IPMode

HTTP, SSH = PortTraffic(80), PortTraffic(22)
HEADER = PortTraffic(443, proxy_protocol="v2")
TLS = PortTraffic(8443, terminates="TLS")
KEPT, REWRITTEN = Delivery.KEPT, Delivery.REWRITTEN
IPVS = ServiceProxyHint.IPVS


def inputs(*ports: PortTraffic, delivery: Delivery = REWRITTEN, **more: Any) -> Inputs:
    """`more` belongs to Traffic or to Inputs, whichever has it."""
    fields = {field.name for field in dataclasses.fields(Inputs)}
    own = {name: value for name, value in more.items() if name in fields}
    rest = {name: value for name, value in more.items() if name not in fields}
    return Inputs(Traffic(delivery, ports, **rest), **own)


ROWS = [
    pytest.param(Inputs(), "VIP", "nothing-known", id="nothing is known"),
    pytest.param(inputs(HTTP), "Proxy", "destination-rewritten", id="rewritten"),
    pytest.param(inputs(HTTP, delivery=KEPT), "VIP", "destination-kept", id="kept"),
    pytest.param(inputs(HTTP, default=IPMode.VIP), "VIP", "provider", id="the provider's default"),
    pytest.param(
        inputs(HTTP, default=IPMode.VIP, private_default=IPMode.PROXY), "VIP", "provider", id="a public address"
    ),
    pytest.param(
        inputs(HTTP, default=IPMode.VIP, private_default=IPMode.PROXY, scope=Scope.PRIVATE),
        "Proxy",
        "provider",
        id="a private address",
    ),
    pytest.param(
        inputs(HTTP, default=IPMode.VIP, scope=Scope.PRIVATE), "VIP", "provider", id="private, without its default"
    ),
    pytest.param(
        inputs(HTTP, scope=Scope.PRIVATE), "Proxy", "destination-rewritten", id="private, without any default"
    ),
    pytest.param(inputs(HEADER, default=IPMode.VIP), "Proxy", "proxy-protocol", id="PROXY protocol"),
    pytest.param(inputs(TLS, default=IPMode.VIP), "Proxy", "termination", id="TLS"),
    pytest.param(
        inputs(PortTraffic(80, terminates="HTTP"), default=IPMode.VIP), "Proxy", "termination", id="HTTP is read"
    ),
    pytest.param(inputs(HEADER, TLS), "Proxy", "proxy-protocol", id="both"),
    pytest.param(inputs(HEADER, delivery=KEPT), "VIP", "destination-kept", id="a header on a kept destination"),
    pytest.param(
        inputs(HTTP, default=IPMode.VIP, service_proxy=IPVS, probes_from_own_address=True),
        "Proxy",
        "ipvs-probes",
        id="IPVS and probes from the address",
        marks=pytest.mark.scenario("B13"),
    ),
    *(
        pytest.param(
            inputs(HTTP, default=IPMode.VIP, service_proxy=proxy, probes_from_own_address=True),
            "VIP",
            "provider",
            id=f"{proxy.name} and probes from the address",
            marks=pytest.mark.scenario("B13"),
        )
        for proxy in ServiceProxyHint
        if proxy is not IPVS
    ),
    pytest.param(
        inputs(HTTP, default=IPMode.VIP, service_proxy=IPVS), "VIP", "provider", id="IPVS, and probes from elsewhere"
    ),
    pytest.param(
        inputs(HTTP, delivery=Delivery.UNKNOWN, probes_to_own_address=True, service_proxy=IPVS),
        "VIP",
        "probes-to-own-address",
        id="probes to the address",
        marks=pytest.mark.scenario("B83"),
    ),
    pytest.param(inputs(HTTP, override="VIP"), "VIP", "annotation", id="annotated VIP"),
    pytest.param(inputs(HTTP, delivery=KEPT, override="Proxy"), "Proxy", "annotation", id="annotated Proxy"),
    pytest.param(inputs(HEADER, override="Router"), "Router", "annotation", id="annotated with a later value"),
    pytest.param(inputs(HTTP, override="VIP", taken="node n2"), "Proxy", "taken", id="a node's address, annotated VIP"),
    pytest.param(inputs(HTTP, source_ranges=True), "Proxy", "destination-rewritten", id="source ranges"),
    pytest.param(inputs(HTTP, delivery=KEPT, source_ranges=True), "VIP", "destination-kept", id="source ranges, kept"),
]


@pytest.mark.parametrize(("given", "mode", "rule"), ROWS)
def test_the_first_row_that_applies_decides(given: Inputs, mode: str, rule: str) -> None:
    decision = ipmode.decide(given)
    assert (decision.mode, decision.rule) == (mode, rule)
    assert decision.reason
    assert "{" not in decision.reason


def test_every_row_decides_something() -> None:
    assert {rule.name for rule in ipmode.RULES} == {str(row.values[2]) for row in ROWS}


def test_a_known_mode_is_the_enum_and_a_later_one_its_text() -> None:
    assert ipmode.decide(Inputs(override="Proxy")).mode is IPMode.PROXY
    assert type(ipmode.decide(Inputs(override="Router")).mode) is str


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        pytest.param(
            inputs(HEADER, SSH, TLS),
            "only the load balancer adds what 443/TCP (PROXY protocol v2), 8443/TCP (TLS) expect",
            id="ports",
        ),
        pytest.param(
            inputs(default=IPMode.VIP, scope=Scope.PRIVATE),
            "it is the provider's default for private addresses",
            id="scope",
        ),
        pytest.param(
            inputs(taken="node n2"), "the address is also that of node n2, which VIP would cut off", id="taken"
        ),
    ],
)
def test_the_reason_names_what_it_rests_on(given: Inputs, reason: str) -> None:
    assert ipmode.decide(given).reason == reason


@pytest.mark.scenario("B74")
def test_ports_that_do_not_agree_get_proxy_and_are_told() -> None:
    decision = ipmode.decide(inputs(SSH, HTTP, HEADER))
    assert decision.mode is IPMode.PROXY
    assert decision.mixture == (
        "ipMode is one for all ports of an address: 22/TCP, 80/TCP could do without the load balancer, "
        "443/TCP cannot, so clients inside the cluster pass it on all of them"
    )


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(inputs(HEADER, TLS), id="all need it"),
        pytest.param(inputs(SSH, HTTP), id="none needs it"),
        pytest.param(inputs(SSH, HEADER, override="VIP"), id="VIP all the same"),
    ],
)
def test_ports_that_agree_are_no_mixture(given: Inputs) -> None:
    assert ipmode.decide(given).mixture == ""


BYPASS = (
    "clients inside the cluster bypass the load balancer, and 443/TCP (PROXY protocol v2) get connections without it"
)
UNREACHABLE = "clients outside the cluster are not served: with ipMode Proxy the nodes drop packets for the load balancer's address"
DEAD = "with IPVS the nodes never answer the load balancer's health probes, so all of them become unhealthy"
UNPROBED = "with ipMode Proxy the nodes do not answer health probes that go to the load balancer's address"
SHUT_OUT = (
    "clients inside the cluster arrive at the load balancer with a node's address, which the source ranges may shut out"
)
SILENT = "with IPVS and policy Local, clients in the own network of a node without a pod of the Service get no answer"
OPEN = "nobody enforces the source ranges, so the load balancer is open to all: this cloud does not, and kube-proxy cannot here"
UNSAID = "the load balancer may be open to all: the backend does not say that its cloud enforces the source ranges"

CAUTIONS = [
    pytest.param(inputs(HTTP), [], id="rewritten and Proxy"),
    pytest.param(inputs(HTTP, override="VIP"), [], id="rewritten and VIP"),
    pytest.param(inputs(HTTP, delivery=KEPT), [], id="kept and VIP"),
    pytest.param(inputs(HEADER, override="VIP"), [BYPASS], id="VIP and PROXY protocol"),
    pytest.param(inputs(HEADER, delivery=KEPT), [BYPASS], id="a header on a kept destination"),
    pytest.param(inputs(HTTP, delivery=KEPT, override="Proxy"), [UNREACHABLE], id="kept and Proxy"),
    pytest.param(
        inputs(HTTP, override="VIP", service_proxy=IPVS, probes_from_own_address=True), [DEAD], id="IPVS and VIP"
    ),
    pytest.param(inputs(HTTP, service_proxy=IPVS, probes_from_own_address=True), [], id="IPVS and Proxy"),
    pytest.param(inputs(HTTP, override="VIP", service_proxy=IPVS, local_policy=True), [SILENT], id="IPVS, VIP, Local"),
    pytest.param(inputs(HTTP, service_proxy=IPVS, local_policy=True), [], id="IPVS, Proxy, Local"),
    pytest.param(inputs(HTTP, override="VIP", local_policy=True), [], id="VIP, Local, another proxy"),
    pytest.param(inputs(HTTP, override="Proxy", probes_to_own_address=True), [UNPROBED], id="probes to it and Proxy"),
    pytest.param(inputs(HTTP, probes_to_own_address=True), [], id="probes to it and VIP"),
    pytest.param(inputs(HTTP, source_ranges=True, enforces_source_ranges=True), [SHUT_OUT], id="ranges and Proxy"),
    pytest.param(
        inputs(HTTP, source_ranges=True, enforces_source_ranges=True, override="VIP"), [], id="ranges and VIP"
    ),
    pytest.param(inputs(HTTP, enforces_source_ranges=True), [], id="no ranges"),
    pytest.param(inputs(HTTP, source_ranges=True), [UNSAID], id="who enforces them is not said"),
    pytest.param(Inputs(source_ranges=True), [UNSAID], id="nothing is said at all"),
    pytest.param(inputs(HTTP, delivery=KEPT, source_ranges=True), [], id="kube-proxy does it, whatever the cloud does"),
    pytest.param(
        inputs(HTTP, delivery=KEPT, source_ranges=True, known_to_kube_proxy=False),
        [UNSAID],
        id="an annotation, which kube-proxy does not read",
    ),
    pytest.param(
        inputs(HTTP, delivery=KEPT, source_ranges=True, known_to_kube_proxy=False, enforces_source_ranges=False),
        [OPEN],
        id="an annotation, and nobody",
    ),
    pytest.param(inputs(HTTP, source_ranges=True, enforces_source_ranges=False), [OPEN], id="nobody, Proxy"),
    pytest.param(
        inputs(HTTP, source_ranges=True, enforces_source_ranges=False, override="VIP"), [OPEN], id="nobody, VIP"
    ),
    pytest.param(
        inputs(HTTP, delivery=KEPT, source_ranges=True, enforces_source_ranges=False), [], id="kube-proxy does it"
    ),
]


@pytest.mark.parametrize(("given", "warnings"), CAUTIONS)
def test_what_a_mode_brings_with_it_is_said(given: Inputs, warnings: list[str]) -> None:
    assert list(ipmode.decide(given).warnings) == warnings


def test_every_warning_is_seen() -> None:
    seen = {warning for row in CAUTIONS for warning in row.values[1]}  # type: ignore[union-attr]
    assert len(seen) == len(ipmode.WARNINGS)
