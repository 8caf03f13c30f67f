"""On which nodes a Service has pods that serve."""

from typing import Any

from ccm_lb.dataplane.clients import endpoints
from ccm_lb.dataplane.clients.effect import Endpoints

SLICES: list[dict[str, Any]] = [
    {
        "endpoints": [
            {"nodeName": "n1", "conditions": {"ready": True}},
            {"nodeName": "n1"},
            {"nodeName": "n2", "conditions": {"ready": False}},
            {"nodeName": "gone", "conditions": {"ready": True}},
            {"addresses": ["192.0.2.1"]},
        ]
    },
    {"endpoints": None},
]


def test_nodes_are_told_apart_by_their_ready_pods() -> None:
    found = endpoints.spread(SLICES, ["n3", "n2", "n1"])
    assert found.nodes(Endpoints.HERE) == ("n1",)
    assert found.nodes(Endpoints.ELSEWHERE) == ("n2", "n3")
    assert found.nodes(None) == ("n1", "n2", "n3")
    assert found.ready == 4


def test_without_slices_no_node_has_any() -> None:
    assert endpoints.spread([], ["n1"]) == endpoints.Spread((), ("n1",), 0)
