"""Warnings on Services: once for each thing there is to say, again when it changes, never on a guess."""

from ccm_lb.dataplane import versions
from ccm_lb.dataplane.clients.mismatch import ServiceAdvice
from ccm_lb.dataplane.model import Confidence, Kind, ServiceProxy, unknown
from ccm_lb.objects import Service
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import RecordedEvents


def cilium(version: str) -> ServiceProxy:
    return ServiceProxy(Kind.CILIUM, Confidence.LIKELY, version=versions.parse(version))


def published(*modes: str) -> Service:
    ingress = [{"ip": f"203.0.113.{number}", "ipMode": mode} for number, mode in enumerate(modes, start=10)]
    return builders.service({"status": {"loadBalancer": {"ingress": ingress}}})


class World:
    def __init__(self, *services: Service) -> None:
        self.services = list(services)
        self.events = RecordedEvents()
        self.advice = ServiceAdvice(self.events, lambda: self.services)


def test_one_warning_for_each_address_however_often_it_is_looked_at() -> None:
    service = published("Proxy", "Proxy", "VIP")
    world = World(service)
    for _ in range(3):
        world.advice.proxy_changed(cilium("1.18.0"), None)
        world.advice.served(service)
    assert [line.partition(" is ignored")[0] for line in world.events.lines()] == [
        "Warning IPModeMismatch ipMode Proxy of 203.0.113.10",
        "Warning IPModeMismatch ipMode Proxy of 203.0.113.11",
    ]


def test_a_service_that_is_served_later_is_looked_at_then() -> None:
    world = World()
    world.advice.proxy_changed(cilium("1.18.0"), None)
    world.advice.served(published("Proxy"))
    assert world.events.reasons() == ["IPModeMismatch"]


def test_what_was_cured_and_breaks_again_is_said_again() -> None:
    world = World(published("Proxy"))
    for version in ("1.18.0", "1.18.1", "1.18.0"):
        world.advice.proxy_changed(cilium(version), None)
    assert len(world.events.all) == 2


def test_nothing_is_said_before_the_cluster_was_looked_at_nor_of_an_unknown_one() -> None:
    world = World(published("Proxy"))
    world.advice.served(world.services[0])
    world.advice.proxy_changed(unknown("forbidden"), None)
    assert world.events.all == []


def test_a_service_that_is_gone_is_forgotten() -> None:
    service = published("Proxy")
    world = World(service)
    world.advice.proxy_changed(cilium("1.18.0"), None)
    world.advice.forget(service.uid)
    world.advice.forget(service.uid)
    world.advice.served(service)
    world.services = []
    world.advice.proxy_changed(cilium("1.18.0"), None)
    world.advice.served(service)
    assert len(world.events.all) == 3
