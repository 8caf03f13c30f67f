"""
What every backend has to keep, as tests to inherit.

    from ccm_lb.testing.conformance import LoadBalancerConformance

    class TestAcme(LoadBalancerConformance):
        backend_class = AcmeBackend

        @pytest.fixture
        def config(self, simulator: Simulator) -> AcmeConfig:
            return AcmeConfig(url=simulator.url)

        @pytest.fixture
        def inspector(self, simulator: Simulator) -> Inspector:
            return AcmeInspector(simulator)

Needs pytest and pytest-asyncio; `pytest.register_assert_rewrite("ccm_lb.testing")` before the import makes failures show values. More
fixtures to replace where the defaults do not fit: `transport` (a backend that sends HTTP gives an open `ccm_lb.transport.CloudTransport`),
`service` and `nodes` (the cloud may have to know the machines), `lose_next_reply`.

The inspector looks into the cloud without the code under test; what it misses, the tests miss.
"""

# ruff: noqa: S101 - they are tests
from __future__ import annotations

import asyncio
import copy
import ipaddress
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.actual import differences
from ccm_lb.backends.base import BackendConfig, BackendContext, LoadBalancerBackend, Reads, Transport
from ccm_lb.errors import NotLeaderError, RetryAfterError
from ccm_lb.objects import LoadBalancerStatus, Node, Service
from ccm_lb.redaction import Secrets
from ccm_lb.testing import builders
from ccm_lb.testing.bench import Bench, Inspector, Seen, failure, lost, settled
from ccm_lb.testing.fakes import FakeClock, RecordedEvents
from ccm_lb.testing.transports import LossyTransport, NoTransport

__all__ = ["Bench", "Inspector", "LoadBalancerConformance", "Seen"]

OTHER_UID = "5e7f1c3a-0000-4000-8000-00000000000f"


@pytest.mark.asyncio
class LoadBalancerConformance:
    """Inherit, name the backend, and give `config` and `inspector`."""

    backend_class: ClassVar[type[LoadBalancerBackend[Any]]]

    # ---- what the author gives

    @pytest.fixture
    def config(self) -> BackendConfig:
        """The settings, of a cloud that holds no load balancer yet."""
        raise NotImplementedError("the fixture `config` has to be given")

    @pytest.fixture
    def inspector(self) -> Inspector:
        raise NotImplementedError("the fixture `inspector` has to be given")

    @pytest.fixture
    def transport(self) -> Transport:
        return NoTransport()

    @pytest.fixture
    def service(self) -> Service:
        return builders.service()

    @pytest.fixture
    def nodes(self) -> Sequence[Node]:
        """Four nodes that the cloud takes as targets."""
        return builders.nodes("n1", "n2", "n3", "n4")

    @pytest.fixture
    def lossy_transport(self, transport: Transport) -> LossyTransport:
        return LossyTransport(transport)

    @pytest.fixture
    def lose_next_reply(self, lossy_transport: LossyTransport) -> Callable[[], None]:
        """Makes the next write reach the cloud and its answer get lost; a backend without HTTP gives its own."""
        return lossy_transport.lose_next_write

    # ---- what is made of it

    @pytest_asyncio.fixture
    async def bench(
        self,
        config: BackendConfig,
        lossy_transport: LossyTransport,
        inspector: Inspector,
        service: Service,
        nodes: Sequence[Node],
        lose_next_reply: Callable[[], None],
    ) -> AsyncIterator[Bench]:
        backend, neighbour = (
            self.backend_class(
                BackendContext(cluster, config, lossy_transport, FakeClock(), RecordedEvents(), Secrets())
            )
            for cluster in ("conformance-a", "conformance-b")
        )
        try:
            await backend.open()
            await neighbour.open()
            yield Bench(backend, neighbour, inspector, service, nodes, lose_next_reply)
        finally:
            await neighbour.close()
            await backend.close()

    # ---- create

    async def test_a_new_load_balancer_has_an_address_and_each_ip_has_its_ip_mode(self, bench: Bench) -> None:
        status = await bench.ensure()
        assert status.ingress
        for entry in status.ingress:
            assert entry.ip or entry.hostname
            assert bool(entry.ip) == bool(entry.ip_mode), "ipMode belongs to an IP, and each IP has one"
            if entry.ip:
                ipaddress.ip_address(entry.ip)

    async def test_a_new_load_balancer_listens_on_the_ports_and_sends_to_all_nodes(self, bench: Bench) -> None:
        await bench.ensure()
        seen = await bench.seen_one()
        assert seen.listeners == _listeners(bench.service)
        assert len(seen.targets) == len(bench.nodes)

    async def test_no_nodes_are_no_reason_to_make_no_load_balancer(self, bench: Bench) -> None:
        assert (await bench.ensure(nodes=())).ingress
        assert (await bench.seen_one()).targets == frozenset()

    async def test_what_ensure_answers_is_what_get_answers(self, bench: Bench) -> None:
        status = await bench.ensure()
        found = await bench.backend.get_load_balancer(bench.service)
        assert found is not None
        assert _addresses(found) == _addresses(status)

    # ---- whose is it

    async def test_a_repeated_ensure_makes_no_second_one_and_answers_the_same(self, bench: Bench) -> None:
        first = await bench.ensure()
        seen = await bench.seen_one()
        assert await bench.ensure() == first
        assert await bench.seen_one() == seen

    async def test_a_lost_answer_to_the_create_makes_no_second_one(self, bench: Bench) -> None:
        bench.lose_next_reply()
        assert await lost(bench.ensure), "nothing was lost: does the backend write through `context.transport`?"
        made = await bench.seen_one()
        status = await bench.ensure()
        assert status.ingress
        assert (await bench.seen_one()).listeners == made.listeners

    async def test_services_of_one_name_have_a_load_balancer_for_each_uid(self, bench: Bench) -> None:
        again = builders.changed(bench.service, builders.uid(OTHER_UID))
        first, second = await bench.ensure(), await bench.ensure(again)
        assert set(await bench.seen()) == {bench.service.uid, OTHER_UID}
        assert not set(_addresses(first)) & set(_addresses(second))

    async def test_a_load_balancer_is_found_by_the_uid_whatever_else_changed(self, bench: Bench) -> None:
        first = await bench.ensure()
        changed = builders.changed(
            bench.service,
            builders.named("renamed"),
            builders.annotated("example.com/name", "edited"),
            builders.labelled("app", "edited"),
            builders.published({"ip": "203.0.113.250"}),
        )
        assert await bench.backend.get_load_balancer(changed) is not None
        assert _addresses(await bench.ensure(changed)) == _addresses(first)
        await bench.seen_one()

    async def test_ensures_of_several_services_at_a_time_do_not_mix(self, bench: Bench) -> None:
        several = [
            builders.changed(
                bench.service, builders.uid(f"{OTHER_UID[:-2]}{number:02}"), builders.named(f"{'long' * 15}{number:02}")
            )
            for number in range(5)
        ]
        statuses = await asyncio.gather(*(bench.ensure(service) for service in several))
        assert set(await bench.seen()) == {service.uid for service in several}
        given = [address for status in statuses for address in _addresses(status)]
        assert len(set(given)) == len(given)

    async def test_a_load_balancer_of_another_cluster_is_never_touched(self, bench: Bench) -> None:
        # The same UID, as after a restored backup; and the same name of course.
        theirs = await settled(lambda: bench.neighbour.ensure_load_balancer(bench.service, bench.nodes))
        before = await bench.seen(bench.neighbour)
        assert await bench.backend.get_load_balancer(bench.service) is None
        await bench.delete()
        ours = await bench.ensure(builders.changed(bench.service, _other_port(bench.service)), bench.nodes[:1])
        assert not set(_addresses(ours)) & set(_addresses(theirs))
        await bench.delete()
        assert await bench.seen(bench.neighbour) == before

    # ---- change

    async def test_a_changed_port_reaches_the_listeners_and_the_address_stays(self, bench: Bench) -> None:
        first = await bench.ensure()
        changed = builders.changed(bench.service, _other_port(bench.service))
        assert _addresses(await bench.ensure(changed)) == _addresses(first)
        assert (await bench.seen_one()).listeners == _listeners(changed)

    async def test_ensure_replaces_the_targets_too(self, bench: Bench) -> None:
        await bench.ensure(nodes=bench.nodes[:2])
        before = await bench.seen_one()
        await bench.ensure(nodes=bench.nodes[2:])
        assert len((await bench.seen_one()).targets - before.targets) == 2
        assert not before.targets & (await bench.seen_one()).targets

    async def test_update_uses_exactly_the_given_nodes_and_changes_nothing_else(self, bench: Bench) -> None:
        first = await bench.ensure(nodes=bench.nodes[:3])
        before = await bench.seen_one()
        await settled(lambda: bench.backend.update_load_balancer(bench.service, bench.nodes[1:]))
        after = await bench.seen_one()
        assert len(after.targets) == 3
        assert len(after.targets & before.targets) == 2
        assert after.listeners == before.listeners
        assert _addresses(await bench.ensure(nodes=bench.nodes[1:])) == _addresses(first)

    async def test_update_of_an_absent_one_raises_and_makes_none(self, bench: Bench) -> None:
        error = await failure(lambda: bench.backend.update_load_balancer(bench.service, bench.nodes))
        assert error is not None
        assert not isinstance(error, (RetryAfterError, NotLeaderError)), "these would only repeat the update"
        assert await bench.seen() == {}

    # ---- who may connect

    async def test_source_ranges_of_the_field_or_the_annotation_reach_the_cloud_if_it_enforces_them(
        self, bench: Bench
    ) -> None:
        traffic = bench.backend.traffic(bench.service)
        if traffic is None or traffic.enforces_source_ranges is not True:
            pytest.skip("the backend does not say that its cloud enforces source ranges; users are told")
        field = {"spec": {"loadBalancerSourceRanges": [" 198.51.100.7/24"]}}
        annotated = builders.annotated(ccm_annotations.SOURCE_RANGES, "192.0.2.0/25, 192.0.2.128/25")
        for tweaks, expected in (
            ((field,), {"198.51.100.0/24"}),
            ((annotated,), {"192.0.2.0/25", "192.0.2.128/25"}),
            ((field, annotated), {"198.51.100.0/24"}),
            ((), set[str]()),
        ):
            await bench.ensure(builders.changed(bench.service, *tweaks))
            assert (await bench.seen_one()).source_ranges == expected

    # ---- delete

    async def test_delete_leaves_nothing_and_may_be_repeated(self, bench: Bench) -> None:
        await bench.ensure()
        await bench.delete()
        assert await bench.seen() == {}
        assert await bench.backend.get_load_balancer(bench.service) is None
        await bench.delete()

    async def test_delete_takes_only_the_one_that_is_meant(self, bench: Bench) -> None:
        again = builders.changed(bench.service, builders.uid(OTHER_UID))
        await bench.ensure()
        await bench.ensure(again)
        await bench.delete()
        assert set(await bench.seen()) == {OTHER_UID}

    async def test_delete_and_get_of_an_absent_one_are_fine(self, bench: Bench) -> None:
        assert await bench.backend.get_load_balancer(bench.service) is None
        await bench.delete()
        assert await bench.seen() == {}

    async def test_delete_does_not_depend_on_what_the_service_says_by_now(self, bench: Bench) -> None:
        await bench.ensure()
        by_now = builders.changed(
            bench.service,
            builders.of_type("ClusterIP"),
            builders.annotated(ccm_annotations.PROXY_PROTOCOL, "nonsense"),
            {"spec": {"ports": [{"port": 1}], "ipFamilies": ["IPv6"]}},
        )
        assert await bench.backend.get_load_balancer(by_now) is not None
        await bench.delete(by_now)
        assert await bench.seen() == {}

    async def test_a_lost_answer_to_the_delete_may_be_followed_by_another(self, bench: Bench) -> None:
        await bench.ensure()
        bench.lose_next_reply()
        assert await lost(bench.delete), "nothing was lost: does the backend write through `context.transport`?"
        await bench.delete()
        assert await bench.seen() == {}

    # ---- what is there, beside what is wanted

    async def test_what_is_read_after_an_ensure_is_what_is_desired(self, bench: Bench) -> None:
        _needs(bench, Reads.ONE)
        affine = {"spec": {"sessionAffinity": "ClientIP"}}
        for service, nodes in (
            (bench.service, bench.nodes),
            (bench.service, ()),
            (builders.changed(bench.service, _other_port(bench.service), affine), bench.nodes[:2]),
        ):
            status = await bench.ensure(service, nodes)
            [found] = await bench.read(service.uid)
            assert not differences(await bench.backend.desired_settings(service, nodes), found)
            assert found.owner_uid == service.uid
            assert set(found.addresses) == set(_addresses(status))
            assert bench.backend.status_of(service, found) in (None, status)

    async def test_a_setting_that_is_not_as_desired_is_a_difference(self, bench: Bench) -> None:
        _needs(bench, Reads.ONE)
        await bench.ensure(nodes=bench.nodes[:3])
        [found] = await bench.read(bench.service.uid)
        for service, nodes in (
            (builders.changed(bench.service, _other_port(bench.service)), bench.nodes[:3]),
            (bench.service, bench.nodes[1:]),
            (bench.service, bench.nodes[:2]),
        ):
            assert differences(await bench.backend.desired_settings(service, nodes), found)

    async def test_one_is_read_by_its_uid_and_none_of_another_cluster(self, bench: Bench) -> None:
        _needs(bench, Reads.ONE)
        assert await bench.read(bench.service.uid) == []
        await settled(lambda: bench.neighbour.ensure_load_balancer(bench.service, bench.nodes))
        assert await bench.read(bench.service.uid) == []
        await bench.ensure(builders.changed(bench.service, builders.uid(OTHER_UID)))
        await bench.ensure()
        assert [one.owner_uid for one in await bench.read(OTHER_UID)] == [OTHER_UID]

    async def test_all_of_the_cluster_are_read_and_none_of_another(self, bench: Bench) -> None:
        _needs(bench, Reads.ALL)
        assert await bench.read() == []
        await settled(lambda: bench.neighbour.ensure_load_balancer(bench.service, bench.nodes))
        assert await bench.read() == []
        await bench.ensure(builders.changed(bench.service, builders.uid(OTHER_UID)))
        await bench.ensure()
        assert {one.owner_uid for one in await bench.read()} == {bench.service.uid, OTHER_UID}
        assert {(one.id, one.addresses) for one in await bench.read()} == {
            (one.id, one.addresses) for uid in (bench.service.uid, OTHER_UID) for one in await bench.read(uid)
        }

    async def test_reading_changes_nothing_and_shows_no_secret(self, bench: Bench) -> None:
        _needs(bench, Reads.ONE)
        await bench.ensure()
        before = await bench.seen()
        bench.backend.context.secrets.add_settings(dict(bench.backend.context.config))
        shown = (
            f"{await bench.read(bench.service.uid)} {await bench.backend.desired_settings(bench.service, bench.nodes)}"
        )
        assert bench.backend.context.secrets.redact(shown) == shown
        assert await bench.seen() == before

    # ---- read-only

    async def test_service_and_nodes_are_left_as_they_were(self, bench: Bench) -> None:
        given: list[Service | Node] = [bench.service, *bench.nodes]
        before = [(one.model_copy(deep=True), copy.deepcopy(one.raw)) for one in given]
        await bench.ensure()
        await settled(lambda: bench.backend.update_load_balancer(bench.service, bench.nodes))
        await bench.backend.get_load_balancer(bench.service)
        await bench.delete()
        assert [(one, one.raw) for one in given] == before


def _needs(bench: Bench, reads: Reads) -> None:
    if bench.backend.reads not in (reads, Reads.ALL):
        pytest.skip(f"the backend's reads are {bench.backend.reads.name}")


def _listeners(service: Service) -> frozenset[tuple[str, int, int]]:
    return frozenset((port.protocol, port.port, port.node_port) for port in service.spec.ports)


def _other_port(service: Service) -> builders.Tweak:
    port = service.spec.ports[0]
    return builders.port(port.port + 1, port.node_port + 1, port.protocol, port.name)


def _addresses(status: LoadBalancerStatus) -> list[str]:
    return [entry.ip or entry.hostname or "" for entry in status.ingress]
