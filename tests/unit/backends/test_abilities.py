"""What a backend says of its cloud is sound, and decides what it is asked for."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.annotations import HealthCheckProtocol, ProxyProtocol
from ccm_lb.backends import abilities
from ccm_lb.backends.abilities import FAMILIES, PROTOCOLS, Abilities, Honoured
from ccm_lb.errors import TerminalError
from ccm_lb.testing import builders

TCP, UDP, SCTP = (builders.port_json(port, protocol=name) for port, name in ((80, "TCP"), (53, "UDP"), (7, "SCTP")))


def ports(*several: Any) -> builders.Tweak:
    return {"spec": {"ports": list(several)}}


def test_silence_is_a_no() -> None:
    assert Abilities().honours == frozenset()
    assert abilities.as_json(Abilities())["protocols"] == ["TCP"]


def test_every_wish_can_be_declared() -> None:
    flags = {one.name: True for one in dataclasses.fields(Abilities) if one.type == "bool"}
    everything: dict[str, Any] = {
        **flags,
        "protocols": PROTOCOLS,
        "families": FAMILIES,
        "proxy_protocols": frozenset({ProxyProtocol.V1}),
        "health_checks": frozenset(HealthCheckProtocol),
        "annotations": frozenset({"acme.example.com/*"}),
    }
    assert Abilities(**everything).honours == {*Honoured, "acme.example.com/*"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        pytest.param({"protocols": frozenset({"QUIC"})}, "protocols is ['QUIC']: expected", id="protocol"),
        pytest.param({"families": frozenset()}, "families is []: expected", id="no family"),
        pytest.param({"dual_stack": True}, "expected both", id="dual stack of one family"),
        pytest.param({"mixed_protocols": True}, "expected several", id="a mixture of one protocol"),
        pytest.param({"proxy_protocols": frozenset({ProxyProtocol.NONE})}, "v1, v2", id="no header as a version"),
        pytest.param({"max_targets": 0}, "max_targets is 0", id="no targets"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="Abilities: ") as error:
        Abilities(**given)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("able", "asked", "refused"),
    [
        pytest.param(Abilities(), [TCP], [], id="TCP"),
        pytest.param(Abilities(), [TCP, UDP], [(53, "ProtocolNotSupported")], id="no UDP"),
        pytest.param(
            Abilities(protocols=PROTOCOLS), [UDP, TCP, SCTP],
            [(80, "MixedProtocolNotSupported"), (7, "MixedProtocolNotSupported")], id="no mixture",
        ),
        pytest.param(
            Abilities(protocols=frozenset({"TCP", "UDP"})), [SCTP, UDP], [(7, "ProtocolNotSupported")],
            id="what is left does not mix with what is refused",
        ),
        pytest.param(Abilities(protocols=PROTOCOLS, mixed_protocols=True), [UDP, TCP, SCTP], [], id="all"),
    ],
)  # fmt: skip
def test_which_ports_are_refused(able: Abilities, asked: list[Any], refused: list[tuple[int, str]]) -> None:
    service = builders.service(ports(*asked))
    assert [(one.port, one.error) for one in abilities.refused_ports(service, able)] == refused
    left = [port.port for port in abilities.within(service, able).spec.ports]
    assert left == [one["port"] for one in asked if one["port"] not in [port for port, _ in refused]]


def test_a_service_within_the_abilities_is_the_same_object() -> None:
    service = builders.service()
    assert abilities.within(service, Abilities()) is service


@pytest.mark.parametrize(
    ("able", "asked", "left"),
    [
        pytest.param(Abilities(), ("IPv4", "IPv6"), ("IPv4",), id="IPv4 alone"),
        pytest.param(Abilities(families=FAMILIES), ("IPv6", "IPv4"), ("IPv6",), id="one of either"),
        pytest.param(Abilities(families=FAMILIES, dual_stack=True), ("IPv6", "IPv4"), ("IPv6", "IPv4"), id="both"),
    ],
)
def test_which_families_are_left(able: Abilities, asked: tuple[str, ...], left: tuple[str, ...]) -> None:
    assert abilities.within(builders.service(builders.families(*asked)), able).spec.ip_families == left


def test_a_service_of_a_family_that_the_cloud_has_not_is_refused() -> None:
    with pytest.raises(TerminalError, match="IPv6, and the cloud has load balancers for IPv4 alone"):
        abilities.within(builders.service(builders.families("IPv6")), Abilities())


@pytest.mark.parametrize(
    ("name", "value", "able"),
    [
        pytest.param(
            ccm_annotations.PROXY_PROTOCOL, "v2", {"proxy_protocols": frozenset({ProxyProtocol.V1})}, id="header"
        ),
        pytest.param(
            ccm_annotations.HEALTH_CHECK_PROTOCOL, "http", {"health_checks": frozenset({HealthCheckProtocol.TCP})},
            id="check",
        ),
    ],
)  # fmt: skip
def test_another_kind_of_what_the_cloud_has_is_refused(name: str, value: str, able: dict[str, Any]) -> None:
    options = ccm_annotations.parse(builders.service(builders.annotated(name, value)))
    with pytest.raises(TerminalError, match=f'annotation {name} is "{value}", and the cloud has'):
        abilities.check_options(options, Abilities(**able))
    abilities.check_options(options, Abilities())  # none at all: a warning tells
    abilities.check_options(ccm_annotations.parse(builders.service()), Abilities(**able))


def test_a_limit_of_targets_chooses_the_same_nodes_again_and_a_new_node_moves_one_at_most() -> None:
    several = builders.nodes(*(f"n{number}" for number in range(1, 30)))
    able = Abilities(max_targets=10)
    chosen = abilities.within_limit("uid", several, able)
    assert len(chosen) == 10
    assert list(chosen) == sorted(chosen, key=several.index)
    more = abilities.within_limit("uid", [*several, builders.node("n30")], able)
    assert len({one.name for one in chosen} - {one.name for one in more}) <= 1
    assert abilities.within_limit("uid", several, Abilities()) is several
    assert abilities.within_limit("uid", several[:10], able) == several[:10]
