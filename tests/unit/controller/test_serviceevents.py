"""What a Service's user is told, byte for byte as upstream says it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ccm_lb.controller.endings import Ending
from ccm_lb.controller.serviceevents import ServiceEvents, words
from ccm_lb.testing import builders
from ccm_lb.testing.fakes import RecordedEvents

SERVICE = builders.service()
ERROR = RuntimeError("quota exceeded")


@pytest.mark.parametrize(
    ("say", "expected"),
    [
        pytest.param(lambda a: a.ensuring(SERVICE), "Normal EnsuringLoadBalancer Ensuring load balancer", id="E1"),
        pytest.param(lambda a: a.ensured(SERVICE), "Normal EnsuredLoadBalancer Ensured load balancer", id="E2"),
        pytest.param(
            lambda a: a.sync_failed(SERVICE, ERROR),
            "Warning SyncLoadBalancerFailed Error syncing load balancer: quota exceeded",
            id="E3",
        ),
        pytest.param(lambda a: a.deleting(SERVICE), "Normal DeletingLoadBalancer Deleting load balancer", id="E4"),
        pytest.param(
            lambda a: a.ended(SERVICE, Ending.DELETE), "Normal DeletedLoadBalancer Deleted load balancer", id="E5"
        ),
        pytest.param(
            lambda a: a.delete_failed(SERVICE, ERROR),
            "Warning DeleteLoadBalancerFailed Error deleting load balancer: quota exceeded",
            id="E6",
        ),
        pytest.param(
            lambda a: a.no_nodes(SERVICE),
            "Warning UnAvailableLoadBalancer There are no available nodes for LoadBalancer",
            id="E7",
        ),
        pytest.param(
            lambda a: a.nodes_updated(SERVICE, ()),
            "Warning UnAvailableLoadBalancer There are no available nodes for LoadBalancer",
            id="E7-after-an-update",
        ),
        pytest.param(
            lambda a: a.nodes_updated(SERVICE, builders.nodes()),
            "Normal UpdatedLoadBalancer Updated load balancer with new hosts",
            id="E8",
        ),
        pytest.param(
            lambda a: a.update_failed(SERVICE, builders.nodes(), ERROR),
            "Warning UpdateLoadBalancerFailed Error updating load balancer with new hosts [n1 n2 n3] "
            "[node names limited, total number of nodes: 3], error: quota exceeded",
            id="E9",
        ),
        pytest.param(
            lambda a: a.waiting(SERVICE, ERROR),
            "Normal WaitingForLoadBalancer Waiting for the load balancer: quota exceeded",
            id="waiting",
        ),
    ],
)
def test_the_words(say: Callable[[ServiceEvents], None], expected: str) -> None:
    events = RecordedEvents()
    say(ServiceEvents(events))
    assert events.lines() == [expected]


def test_a_long_list_of_nodes_is_cut_and_its_length_said() -> None:
    events = RecordedEvents()
    nodes = builders.nodes(*(f"n{number}" for number in range(1, 31)))
    ServiceEvents(events).update_failed(SERVICE, nodes, ERROR)
    [message] = [event.message for event in events.all]
    assert "n20] [node names limited, total number of nodes: 30]" in message
    assert "n21" not in message


@pytest.mark.parametrize(("error", "said"), [(ERROR, "quota exceeded"), (TimeoutError(), "TimeoutError")])
def test_an_error_without_words_is_said_by_its_kind(error: Exception, said: str) -> None:
    assert words(error) == said
