"""What `ccm-lb explain` says."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ccm_lb.commands import explain, main
from ccm_lb.controller.addresses import Owners
from ccm_lb.controller.desiredstatus import Circumstances
from ccm_lb.ipmode import Delivery, PortTraffic, ServiceProxyHint, Traffic
from ccm_lb.testing import builders

TRAFFIC = Traffic(Delivery.REWRITTEN, (PortTraffic(80, proxy_protocol="v2"), PortTraffic(22)), True)
AROUND = Circumstances(TRAFFIC, Owners({"n2": ["192.0.2.12"]}), frozenset(), ServiceProxyHint.NFTABLES)
PUBLISHED = builders.service(
    builders.published({"ip": "203.0.113.1", "ipMode": "VIP"}),
    builders.annotated("ccm-lb.dev/ip-mode", "VIP"),
    {"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}},
)


def test_mode_reason_row_inputs_and_warnings_are_shown() -> None:
    lines = list(explain.explained(PUBLISHED, AROUND, {"n1": "v1.28.0", "n2": "unknown"}).lines())
    assert lines == [
        "lb/web: 203.0.113.1: ipMode VIP, because the annotation ccm-lb.dev/ip-mode says so",
        "  warning: clients inside the cluster bypass the load balancer, and 80/TCP (PROXY protocol v2) get connections without it",
        "  row of the table: 2, the annotation `ccm-lb.dev/ip-mode` is set",
        "  annotation: VIP",
        "  delivery: destination rewritten",
        "  ports: 80/TCP (PROXY protocol v2), 22/TCP",
        "  address: public",
        "  source ranges: yes; enforced by the cloud: yes",
        "  externalTrafficPolicy: Cluster",
        "  probes from the own address: no; to it: no",
        "  provider's default: none",
        "  service proxy: kube-proxy (nftables)",
        "  warning: kube-proxy is too old for ipMode on the nodes n1",
        "  nodes whose kube-proxy's version is unknown: 1",
    ]


def test_ipvs_and_policy_local_with_vip_are_warned_of() -> None:
    around = dataclasses.replace(AROUND, traffic=Traffic(Delivery.KEPT), service_proxy=ServiceProxyHint.IPVS)
    service = builders.changed(PUBLISHED, {"spec": {"externalTrafficPolicy": "Local"}})
    lines = list(explain.explained(service, around, {}).lines())
    assert (
        "  warning: with IPVS and policy Local, clients in the own network of a node without a pod of the Service get no answer"
    ) in lines
    assert "  externalTrafficPolicy: Local" in lines


def test_what_is_published_is_shown_where_it_is_something_else_and_a_mixture_is_noted() -> None:
    service = builders.changed(PUBLISHED, builders.annotated("ccm-lb.dev/ip-mode", None))
    lines = list(explain.explained(service, AROUND, {}).lines())
    assert lines[0].startswith("lb/web: 203.0.113.1: ipMode Proxy, because only the load balancer adds what")
    assert lines[1] == "  published: VIP"
    assert lines[2].startswith("  note: ipMode is one for all ports of an address")


def test_a_service_without_an_address_is_explained_as_far_as_it_can_be() -> None:
    [line, *_] = explain.explained(builders.service(), AROUND, {}).lines()
    assert line.startswith("lb/web: no address yet: ipMode Proxy, because")


@pytest.mark.parametrize("others", [[], [{"ip": "203.0.113.1", "ipMode": "VIP"}]])
def test_an_address_that_would_not_be_published_is_named(others: list[builders.Tweak]) -> None:
    service = builders.service(builders.published({"ip": "192.0.2.12", "ipMode": "VIP"}, *others))
    found = explain.explained(service, AROUND, {})
    assert "192.0.2.12 is also the address of node n2" in found.refused[0]
    assert "  address: public, also of node n2" in found.lines()


def test_the_json_has_the_same_and_can_be_read() -> None:
    shown = json.loads(json.dumps(explain.explained(PUBLISHED, AROUND, {"n1": "v1.28.0"}).as_json()))
    [address] = shown["addresses"]
    assert (address["ipMode"], address["published"], address["rule"]) == ("VIP", "VIP", "annotation")
    assert address["inputs"]["ports"][0] == {"port": 80, "protocol": "TCP", "proxy_protocol": "v2", "terminates": ""}
    assert shown["nodesThatIgnoreIPMode"] == ["n1"]


def test_a_cloud_that_could_not_be_asked_is_said_first() -> None:
    found = dataclasses.replace(explain.explained(PUBLISHED, AROUND, {}), cloud_silent="no answer")
    assert next(iter(found.lines())) == (
        "warning: the cloud could not be asked, so the settings alone count: no answer"
    )
    assert found.as_json()["cloudNotAsked"] == "no answer"


@pytest.mark.parametrize("name", ["web", "/web", "lb/", "a/b/c"])
def test_a_name_without_its_namespace_is_a_mistake(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute(["explain", name, "--cloud-provider=fakecloud"]) == 2
    assert "NAMESPACE/NAME" in capsys.readouterr().err
