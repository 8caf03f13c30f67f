"""Which addresses may be published, and in which order."""

from __future__ import annotations

import ipaddress

import pytest

from ccm_lb.controller import addresses
from ccm_lb.controller.addresses import Kind, Owners
from ccm_lb.ipmode import Scope
from ccm_lb.objects import LoadBalancerIngress

OWNERS = Owners({"n1": ["192.0.2.11", "2001:DB8::0:11"], "n2": ["192.0.2.12"]}, ["198.51.100.1", "127.0.0.1"])


@pytest.mark.parametrize(
    ("ip", "kind"),
    [
        ("127.0.0.1", Kind.LOOPBACK),
        ("127.84.0.7", Kind.LOOPBACK),
        ("::1", Kind.LOOPBACK),
        ("::ffff:127.0.0.1", Kind.LOOPBACK),
        ("169.254.1.1", Kind.LINK_LOCAL),
        ("fe80::1", Kind.LINK_LOCAL),
        ("0.0.0.0", Kind.UNSPECIFIED),
        ("::", Kind.UNSPECIFIED),
        ("224.0.0.5", Kind.MULTICAST),
        ("ff02::1", Kind.MULTICAST),
        ("203.0.113.10", None),
        ("10.0.0.1", None),
        ("2001:db8:f::1", None),
        ("::ffff:203.0.113.10", None),
    ],
)
def test_special_addresses_are_told_apart(ip: str, kind: Kind | None) -> None:
    assert addresses.special(ipaddress.ip_address(ip)) is kind


@pytest.mark.parametrize(
    ("ip", "what", "kind"),
    [
        pytest.param("127.0.0.2", "is a loopback address", "loopback", id="special"),
        pytest.param("::", "is the unspecified address", "unspecified", id="none"),
        pytest.param("192.0.2.12", "is also the address of node n2", "node", id="a node's"),
        pytest.param("2001:db8::11", "is also the address of node n1", "node", id="a node's, written otherwise"),
        pytest.param("127.0.0.1", "is also the address of the API server", "api-server", id="the API server's"),
    ],
)
def test_an_unfit_address_is_named_with_what_would_allow_it(ip: str, what: str, kind: str) -> None:
    said = addresses.refusal(ip, OWNERS, frozenset())
    assert said == f"{ip} {what}: not published unless --allow-addresses names {kind}"


def test_a_fit_address_is_not_refused() -> None:
    assert addresses.refusal("203.0.113.10", OWNERS, frozenset()) == ""


@pytest.mark.parametrize(
    ("ip", "kind"), [("127.0.0.2", Kind.LOOPBACK), ("192.0.2.12", Kind.NODE), ("198.51.100.1", Kind.API_SERVER)]
)
def test_each_kind_is_allowed_by_its_own_name(ip: str, kind: Kind) -> None:
    assert addresses.refusal(ip, OWNERS, frozenset({kind})) == ""
    assert addresses.refusal(ip, OWNERS, frozenset(Kind) - {kind}) != ""


@pytest.mark.parametrize(
    ("ip", "whose"), [("192.0.2.12", "node n2"), ("198.51.100.1", "the API server"), ("127.0.0.2", "")]
)
def test_who_else_has_an_address_is_known(ip: str, whose: str) -> None:
    assert OWNERS.taken(ip) == whose


@pytest.mark.parametrize(
    ("ip", "scope"),
    [
        ("10.1.2.3", Scope.PRIVATE),
        ("100.64.0.1", Scope.PRIVATE),
        ("fd00::1", Scope.PRIVATE),
        ("203.0.113.10", Scope.PUBLIC),
        ("172.32.0.1", Scope.PUBLIC),
        ("2001:db8:f::1", Scope.PUBLIC),
    ],
)
def test_private_and_public_addresses(ip: str, scope: Scope) -> None:
    assert addresses.scope(ip) is scope


def test_what_is_no_address_stays_as_it_is() -> None:
    assert [addresses.canonical(text) for text in ("nonsense", "non:sense")] == ["nonsense", "non:sense"]


V4, OTHER_V4 = LoadBalancerIngress(ip="203.0.113.10"), LoadBalancerIngress(ip="203.0.113.20")
V6, HOST = LoadBalancerIngress(ip="2001:db8:f::10"), LoadBalancerIngress(hostname="lb.example.com")


@pytest.mark.parametrize(
    ("given", "families", "published", "foreign"),
    [
        pytest.param([V4, V6], ["IPv4", "IPv6"], [V4, V6], [], id="in order"),
        pytest.param([V4, V6], ["IPv6", "IPv4"], [V6, V4], [], id="the other order"),
        pytest.param([V4, V6], ["IPv4"], [V4], [V6], id="a family too many", marks=pytest.mark.scenario("B66")),
        pytest.param([V4, V6], ["IPv6"], [V6], [V4], id="IPv6 alone", marks=pytest.mark.scenario("B65")),
        pytest.param([V4], ["IPv6"], [], [V4], id="none that fits"),
        pytest.param([V6, V4], [], [V6, V4], [], id="families are not known"),
        pytest.param([OTHER_V4, V4, V6], ["IPv6", "IPv4"], [V6, OTHER_V4, V4], [], id="several of a family"),
        pytest.param([V4, V4], ["IPv4"], [V4], [], id="twice"),
        pytest.param([HOST, V4], ["IPv4"], [V4, HOST], [], id="host names last"),
        pytest.param([HOST], ["IPv4", "IPv6"], [HOST], [], id="a host name alone"),
    ],
)
def test_entries_come_in_the_order_of_the_families(
    given: list[LoadBalancerIngress],
    families: list[str],
    published: list[LoadBalancerIngress],
    foreign: list[LoadBalancerIngress],
) -> None:
    assert addresses.in_order(given, families) == (tuple(published), tuple(foreign))


@pytest.mark.parametrize(
    ("given", "families", "lacking"),
    [
        pytest.param([V4], ["IPv4", "IPv6"], ("IPv6",), id="one of two"),
        pytest.param([V4, V6], ["IPv4", "IPv6"], (), id="both"),
        pytest.param([HOST], ["IPv4", "IPv6"], (), id="a host name"),
        pytest.param([], ["IPv4"], (), id="nothing"),
    ],
)
def test_a_family_without_an_address_is_noticed(
    given: list[LoadBalancerIngress], families: list[str], lacking: tuple[str, ...]
) -> None:
    assert addresses.missing(given, families) == lacking
