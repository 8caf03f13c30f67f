"""What is to be published of a load balancer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.base import Honoured
from ccm_lb.controller import desiredstatus
from ccm_lb.controller.addresses import Kind, Owners
from ccm_lb.controller.desiredstatus import Circumstances
from ccm_lb.errors import CCMError, TerminalError
from ccm_lb.ipmode import Delivery, PortTraffic, Traffic
from ccm_lb.objects import IPMode, LoadBalancerIngress, LoadBalancerStatus, PortStatus
from ccm_lb.testing import builders

SERVICE = builders.service()
DUAL = builders.service(builders.families("IPv6", "IPv4"))
V4, V6 = LoadBalancerIngress(ip="203.0.113.10"), LoadBalancerIngress(ip="2001:db8:f::10")
HOST = LoadBalancerIngress(hostname="lb.example.com")
NODE = LoadBalancerIngress(ip="192.0.2.12")
NOBODY = Owners({})
HEADER = Traffic(Delivery.REWRITTEN, (PortTraffic(80, proxy_protocol="v2"), PortTraffic(22)))


def around(traffic: Traffic | None = None, *allowed: Kind, owners: Owners = NOBODY) -> Circumstances:
    return Circumstances(traffic, owners, frozenset(allowed))


def reasons(notices: Any) -> list[str]:
    return [one.reason for one in notices]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "service status returned by EnsureLoadBalancer is nil"),
        (LoadBalancerStatus(ingress=(LoadBalancerIngress(ip="x"),)), "the backend returned an unusable address"),
        (
            LoadBalancerStatus(
                ingress=(V4.model_copy(update={"ports": (PortStatus(port=1, protocol="TCP", error="a b"),)}),)
            ),
            "the backend returned an unusable address",
        ),
    ],
)
def test_an_unusable_answer_is_refused(answer: object, said: str) -> None:
    with pytest.raises(CCMError, match=said):
        desiredstatus.checked(SERVICE, answer)


def test_a_usable_answer_is_taken() -> None:
    [entry] = desiredstatus.checked(SERVICE, LoadBalancerStatus(ingress=(V4,))).ingress
    assert entry.ip == V4.ip


def test_what_is_fit_is_published_and_the_rest_told() -> None:
    owners = Owners({"n2": ["192.0.2.12"]})
    entries, said = desiredstatus.fit(SERVICE, [NODE, V4, V6, HOST], around(owners=owners))
    assert entries == (V4, HOST)
    assert reasons(said) == ["AddressNotPublished", "AddressNotPublished"]
    assert "192.0.2.12" in said[0].message
    assert said[1].message == "2001:db8:f::10 is not published: the Service's spec.ipFamilies is IPv4"


def test_nothing_to_publish_is_no_error() -> None:
    assert desiredstatus.fit(SERVICE, [], around()) == ((), ())


@pytest.mark.scenario("B16")
def test_where_no_address_is_fit_it_is_an_error_that_names_them() -> None:
    owners = Owners({"n2": ["192.0.2.12"]})
    with pytest.raises(TerminalError, match=r"192\.0\.2\.12 is also the address of node n2: not published unless"):
        desiredstatus.fit(SERVICE, [NODE], around(owners=owners))


def test_a_family_that_the_load_balancer_lacks_is_told() -> None:
    entries, said = desiredstatus.fit(DUAL, [V4], around())
    assert entries == (V4,)
    assert reasons(said) == ["AddressMissing"]


def test_a_backend_that_decides_by_itself_is_followed() -> None:
    entries = [V4.model_copy(update={"ip_mode": IPMode.PROXY}), V6]
    draft = desiredstatus.draft(DUAL, entries, around())
    assert [one.ip_mode for one in draft.status.ingress] == ["Proxy", "VIP"]
    assert [draft.modes[str(one.ip)].rule for one in entries] == ["provider", "nothing-known"]


def test_the_table_goes_before_the_answer_where_the_backend_tells_how_it_treats_traffic() -> None:
    draft = desiredstatus.draft(SERVICE, [V4.model_copy(update={"ip_mode": IPMode.VIP}), HOST], around(HEADER))
    assert [one.ip_mode for one in draft.status.ingress] == ["Proxy", None]
    assert reasons(draft.notices) == ["IPModeChosen", "IPModeMixed"]


def test_addresses_for_which_the_same_holds_share_a_notice() -> None:
    draft = desiredstatus.draft(DUAL, [V6, V4], around(HEADER))
    assert draft.notices[0].message.startswith("ipMode Proxy for 2001:db8:f::10, 203.0.113.10: ")


def test_the_annotation_overrides_and_what_it_breaks_is_said() -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.IP_MODE, "VIP"))
    draft = desiredstatus.draft(service, [V4], around(HEADER))
    assert draft.status.ingress[0].ip_mode is IPMode.VIP
    assert reasons(draft.notices) == ["IPModeChosen", "IPModeConflict"]


def test_a_refused_annotation_leaves_the_mode_that_was() -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.IP_MODE, "Magic"))
    kept_back = Traffic(Delivery.REWRITTEN)
    draft = desiredstatus.draft(service, [V4], around(kept_back), kept={"203.0.113.10": IPMode.VIP})
    assert draft.status.ingress[0].ip_mode is IPMode.VIP
    assert draft.notices[0].message == (
        "ipMode VIP for 203.0.113.10: it stays until the annotation ccm-lb.dev/ip-mode is right"
    )
    assert reasons(draft.notices) == ["IPModeChosen", "IPModeRefused"]


def test_a_refused_annotation_does_not_leave_vip_on_ports_that_need_the_load_balancer() -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.IP_MODE, "Magic"))
    draft = desiredstatus.draft(service, [V4], around(HEADER), kept={"203.0.113.10": IPMode.VIP})
    assert draft.status.ingress[0].ip_mode is IPMode.PROXY
    assert reasons(draft.notices) == ["IPModeChosen", "IPModeMixed", "IPModeRefused"]


@pytest.mark.parametrize(
    ("published", "traffic", "override", "overtakes"),
    [
        ({"ip": "203.0.113.10", "ipMode": "VIP"}, HEADER, None, True),
        ({"ip": "203.0.113.10"}, HEADER, None, True),
        ({"ip": "203.0.113.10", "ipMode": "VIP"}, HEADER, "Proxy", True),
        ({"ip": "203.0.113.10", "ipMode": "VIP"}, HEADER, "VIP", False),
        ({"ip": "203.0.113.10", "ipMode": "VIP"}, Traffic(Delivery.REWRITTEN), None, False),
        ({"ip": "203.0.113.10", "ipMode": "VIP"}, Traffic(Delivery.KEPT, HEADER.ports), None, False),
        ({"ip": "203.0.113.10", "ipMode": "VIP"}, Traffic(ports=(PortTraffic(80, terminates="TLS"),)), None, True),
        ({"ip": "203.0.113.10", "ipMode": "VIP"}, None, None, False),
        ({"ip": "203.0.113.10", "ipMode": "Proxy"}, HEADER, None, False),
        ({"hostname": "lb.example.com"}, HEADER, None, False),
    ],
)
def test_vip_is_left_before_ports_get_what_only_the_load_balancer_does(
    published: builders.Tweak, traffic: Traffic | None, override: str | None, *, overtakes: bool
) -> None:
    service = builders.service(builders.published(published), builders.annotated(ccm_annotations.IP_MODE, override))
    assert desiredstatus.overtakes(service, around(traffic)) is overtakes


def test_a_refused_annotation_of_a_new_service_leaves_the_choice_to_the_table() -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.IP_MODE, "Magic"))
    draft = desiredstatus.draft(service, [V4], around(HEADER), kept={})
    assert draft.status.ingress[0].ip_mode is IPMode.PROXY


def test_an_allowed_node_address_is_proxy_whatever_the_annotation_says() -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.IP_MODE, "VIP"))
    owners = Owners({"n2": ["192.0.2.12"]})
    entries, _ = desiredstatus.fit(service, [NODE], around(None, Kind.NODE, owners=owners))
    assert desiredstatus.draft(service, entries, around(owners=owners)).status.ingress[0].ip_mode is IPMode.PROXY


def test_ports_in_error_and_ports_that_are_not_there_are_told() -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.PROXY_PROTOCOL_PORTS, "80,22"))
    entry = V4.model_copy(update={"ports": (PortStatus(port=80, protocol="TCP", error="NoNodePort"),)})
    draft = desiredstatus.draft(service, [entry], dataclasses.replace(around(), honours=frozenset(Honoured)))
    assert reasons(draft.notices) == ["IPModeChosen", "UnknownPort", "LoadBalancerPortsError"]


@pytest.mark.parametrize(
    ("annotated", "suffix", "name"),
    [
        (None, "", ""),
        (None, "lb.example.com", "web.lb.lb.example.com"),
        (None, ".example.com", "web.lb.example.com"),
        ("www.example.com", "lb.example.com", "www.example.com"),
    ],
)
def test_a_host_name_is_the_annotations_or_made_with_the_suffix(annotated: str | None, suffix: str, name: str) -> None:
    service = builders.changed(SERVICE, builders.annotated(ccm_annotations.HOSTNAME, annotated))
    assert desiredstatus.hostname(service, suffix) == name


def test_the_host_name_stands_once_for_the_addresses_that_need_it() -> None:
    proxy = [one.model_copy(update={"ip_mode": IPMode.PROXY}) for one in (V4, V6)]
    vip = LoadBalancerIngress(ip="203.0.113.20", ip_mode=IPMode.VIP)
    status = desiredstatus.with_hostname(LoadBalancerStatus(ingress=(*proxy, vip)), "web.example.com")
    assert status.ingress == (LoadBalancerIngress(hostname="web.example.com"), vip)


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        pytest.param(["192.0.2.1"], ["192.0.2.2"], "192.0.2.1 and is 192.0.2.2 now", id="another"),
        pytest.param(["192.0.2.1"], ["lb.example.com"], "192.0.2.1 and is lb.example.com now", id="a-host-name"),
        pytest.param(["192.0.2.1", "2001:db8::1"], [], "192.0.2.1, 2001:db8::1 and is none now", id="none"),
        pytest.param(["192.0.2.1"], ["192.0.2.1", "2001:db8::1"], "", id="one-more"),
        pytest.param([], ["192.0.2.1"], "", id="the-first"),
    ],
)
def test_an_address_that_is_published_no_more_is_told(before: list[str], now: list[str], told: str) -> None:
    def status(names: list[str]) -> LoadBalancerStatus:
        entries = [LoadBalancerIngress(hostname=n) if n.startswith("lb") else LoadBalancerIngress(ip=n) for n in names]
        return LoadBalancerStatus(ingress=tuple(entries))

    notices = desiredstatus.moved(status(before), status(now))
    assert [one.reason for one in notices] == ["AddressChanged"] * bool(told)
    assert all(told in one.message for one in notices)
