"""Each rule of the conformance kit fails on a backend that breaks it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from ccm_lb.backends.base import BackendContext
from ccm_lb.errors import CCMError, CloudUnreachableError, RetryAfterError, TerminalError
from ccm_lb.objects import LoadBalancerStatus, Node, Service
from ccm_lb.redaction import Secrets
from ccm_lb.testing import builders
from ccm_lb.testing.bench import Bench, Seen
from ccm_lb.testing.conformance import LoadBalancerConformance
from ccm_lb.testing.fakes import FakeClock, RecordedEvents
from ccm_lb.testing.memory import MemoryBackend, MemoryConfig
from ccm_lb.testing.script import Lost
from ccm_lb.testing.transports import NoTransport
from tests.contract import broken
from tests.contract.inspectors import MemoryInspector

RULES: list[tuple[str, type[MemoryBackend]]] = [
    ("a_new_load_balancer_has_an_address_and_each_ip_has_its_ip_mode", broken.NoIpMode),
    ("a_new_load_balancer_has_an_address_and_each_ip_has_its_ip_mode", broken.IpModeOfAHostname),
    ("a_new_load_balancer_listens_on_the_ports_and_sends_to_all_nodes", broken.FirstNodeOnly),
    ("a_new_load_balancer_listens_on_the_ports_and_sends_to_all_nodes", broken.FirstPortOfAnother),
    ("no_nodes_are_no_reason_to_make_no_load_balancer", broken.NothingWithoutNodes),
    ("what_ensure_answers_is_what_get_answers", broken.AnswersTheStatus),
    ("what_ensure_answers_is_what_get_answers", broken.AnswersSomethingElse),
    ("a_repeated_ensure_makes_no_second_one_and_answers_the_same", broken.MakesItAnew),
    ("a_lost_answer_to_the_create_makes_no_second_one", broken.RemembersByItself),
    ("a_lost_answer_to_the_create_makes_no_second_one", broken.WritesBesideTheTransport),
    ("services_of_one_name_have_a_load_balancer_for_each_uid", broken.FindsByName),
    ("a_load_balancer_is_found_by_the_uid_whatever_else_changed", broken.FindsByName),
    ("a_load_balancer_is_found_by_the_uid_whatever_else_changed", broken.FindsByAnnotations),
    ("ensures_of_several_services_at_a_time_do_not_mix", broken.OneAtATime),
    ("a_load_balancer_of_another_cluster_is_never_touched", broken.ForgetsTheCluster),
    ("a_load_balancer_of_another_cluster_is_never_touched", broken.DeletesByUid),
    ("a_changed_port_reaches_the_listeners_and_the_address_stays", broken.CreateOnly),
    ("a_changed_port_reaches_the_listeners_and_the_address_stays", broken.NewAddressForNewPorts),
    ("ensure_replaces_the_targets_too", broken.CreateOnly),
    ("update_uses_exactly_the_given_nodes_and_changes_nothing_else", broken.AddsNodes),
    ("update_uses_exactly_the_given_nodes_and_changes_nothing_else", broken.UpdatesListenersToo),
    ("update_of_an_absent_one_raises_and_makes_none", broken.UpdateMakesOne),
    ("update_of_an_absent_one_raises_and_makes_none", broken.UpdateMakesOneAndFails),
    ("update_of_an_absent_one_raises_and_makes_none", broken.UpdateWantsToBeRepeated),
    ("source_ranges_of_the_field_or_the_annotation_reach_the_cloud_if_it_enforces_them", broken.ReadsTheFieldOnly),
    ("delete_leaves_nothing_and_may_be_repeated", broken.DeletesNothing),
    ("delete_leaves_nothing_and_may_be_repeated", broken.DeletesOnce),
    ("delete_takes_only_the_one_that_is_meant", broken.DeletesEverything),
    ("delete_and_get_of_an_absent_one_are_fine", broken.GetRaises),
    ("delete_and_get_of_an_absent_one_are_fine", broken.DeletesOnce),
    ("delete_does_not_depend_on_what_the_service_says_by_now", broken.ParsesBeforeItDeletes),
    ("delete_does_not_depend_on_what_the_service_says_by_now", broken.DeletesLoadBalancersOnly),
    ("a_lost_answer_to_the_delete_may_be_followed_by_another", broken.DeletesNothing),
    ("a_lost_answer_to_the_delete_may_be_followed_by_another", broken.DeletesOnce),
    ("what_is_read_after_an_ensure_is_what_is_desired", broken.WantsAnotherName),
    ("what_is_read_after_an_ensure_is_what_is_desired", broken.AnswersWithoutPorts),
    ("a_setting_that_is_not_as_desired_is_a_difference", broken.TellsNoTargets),
    ("one_is_read_by_its_uid_and_none_of_another_cluster", broken.ReadsAllInsteadOfOne),
    ("one_is_read_by_its_uid_and_none_of_another_cluster", broken.ReadsEveryCluster),
    ("all_of_the_cluster_are_read_and_none_of_another", broken.ReadsEveryCluster),
    ("all_of_the_cluster_are_read_and_none_of_another", broken.ReadsTheFirstPageOnly),
    ("reading_changes_nothing_and_shows_no_secret", broken.TellsItsToken),
    ("reading_changes_nothing_and_shows_no_secret", broken.ReadsByEnsuring),
    ("service_and_nodes_are_left_as_they_were", broken.WritesIntoTheService),
]

RAISED_BY_THE_BACKEND: dict[type[MemoryBackend], type[Exception]] = {
    broken.DeletesOnce: CCMError,
    broken.ParsesBeforeItDeletes: TerminalError,
}
"""Where the test fails by the backend's own error; everywhere else by an assertion."""


class CountingInspector(MemoryInspector):
    """Shows what `RemembersByItself` made twice as two load balancers of one cluster."""

    async def load_balancers(self, cluster_id: str) -> list[Seen]:
        clusters = {cluster for cluster, _ in self._cloud.load_balancers if cluster.rstrip("#") == cluster_id}
        return [one for cluster in clusters for one in await super(CountingInspector, self).load_balancers(cluster)]


def bench(backend_class: type[MemoryBackend]) -> Bench:
    config = MemoryConfig()
    backend, neighbour = (
        backend_class(BackendContext(cluster, config, NoTransport(), FakeClock(), RecordedEvents(), Secrets()))
        for cluster in ("conformance-a", "conformance-b")
    )

    def lose() -> None:
        config.cloud.script.then("ensure", Lost(CloudUnreachableError("lost by the test")))
        config.cloud.script.then("delete", Lost(CloudUnreachableError("lost by the test")))

    nodes = builders.nodes("n1", "n2", "n3", "n4")
    return Bench(backend, neighbour, CountingInspector(config.cloud), builders.service(), nodes, lose)


def rule(name: str) -> Callable[[Bench], Awaitable[None]]:
    test: Callable[[Bench], Awaitable[None]] = getattr(LoadBalancerConformance(), f"test_{name}")
    return test


@pytest.mark.parametrize(
    ("name", "backend"), [pytest.param(name, backend, id=f"{backend.__name__}-{name}") for name, backend in RULES]
)
async def test_a_backend_that_breaks_the_rule_fails_it(name: str, backend: type[MemoryBackend]) -> None:
    with pytest.raises(RAISED_BY_THE_BACKEND.get(backend, AssertionError)):
        await rule(name)(bench(backend))


def test_every_rule_is_seen_failing() -> None:
    rules = {name.removeprefix("test_") for name in dir(LoadBalancerConformance) if name.startswith("test_")}
    assert rules == {name for name, _ in RULES}


async def test_a_cloud_that_never_settles_fails() -> None:
    class NeverReady(MemoryBackend):
        async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
            raise RetryAfterError("in a moment", 0)

    with pytest.raises(AssertionError, match="not settled"):
        await bench(NeverReady).ensure()
