"""What the end has to be, and each way in which it can be wrong."""

import copy
from typing import Any

import pytest

from tests.parity import model
from tests.parity.observe import FINALIZER, LAST_APPLIED

Json = dict[str, Any]


def service(**spec: Any) -> Json:
    return {
        "metadata": {"name": "s", "uid": "u1", "finalizers": [FINALIZER]},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "Proxy"}]}},
    }


def node(name: str, **metadata: Any) -> Json:
    return {"metadata": {"name": name, **metadata}, "spec": {}, "status": {"addresses": [{"address": "192.0.2.9"}]}}


NODES = [node("n1"), node("n2", labels={model.EXCLUDE: ""})]
TARGETS = [node("n1")]


def with_finalizers(one: Json, *names: str, manager: str = "") -> Json:
    changed = copy.deepcopy(one)
    changed["metadata"]["finalizers"] = list(names)
    if manager:
        fields: Json = {"f:metadata": {"f:finalizers": {f'v:"{name}"': {} for name in names}}}
        changed["metadata"]["managedFields"] = [{"manager": manager, "fieldsV1": fields}]
    return changed


def test_a_service_that_is_served_as_it_is_now_is_right() -> None:
    assert model.faults("s", service(), {"u1": (service(), TARGETS)}, NODES) == []


def test_a_service_that_is_gone_with_its_load_balancer_is_right() -> None:
    assert model.faults("s", None, {}, NODES) == []


CLUSTER_IP = with_finalizers(service(type="ClusterIP") | {"status": {}})
FOREIGN = with_finalizers(service(loadBalancerClass="x.y/z"))


@pytest.mark.parametrize(
    ("live", "made", "fault"),
    [
        pytest.param(service(), {}, "s: no load balancer", id="none"),
        pytest.param(
            service(), {"u0": (service(), TARGETS), "u1": (service(), TARGETS)}, "s: leaked load balancer", id="two"
        ),
        pytest.param(service(), {"u1": (service(ports=[{"port": 81}]), TARGETS)}, "s: outdated ports", id="ports"),
        pytest.param(
            service(sessionAffinity="ClientIP"), {"u1": (service(), TARGETS)}, "s: outdated sessionAffinity", id="spec"
        ),
        pytest.param(service(), {"u1": (service(), NODES)}, "s: outdated nodes", id="nodes"),
        pytest.param(with_finalizers(service()), {"u1": (service(), TARGETS)}, "s: no finalizer", id="finalizer"),
        pytest.param(None, {"u1": (service(), TARGETS)}, "s: leaked load balancer", id="gone"),
        pytest.param(CLUSTER_IP, {"u1": (service(), TARGETS)}, "s: leaked load balancer", id="type"),
        pytest.param(with_finalizers(CLUSTER_IP, FINALIZER), {}, "s: finalizer left", id="finalizer-left"),
        pytest.param(with_finalizers(service(type="ClusterIP")), {}, "s: address left", id="address-left"),
        pytest.param(with_finalizers(FOREIGN, FINALIZER, manager="ccm"), {}, "s: finalizer left", id="class"),
    ],
)
def test_what_is_wrong_is_named(live: Json | None, made: Any, fault: str) -> None:
    assert model.faults("s", live, made, NODES) == [fault]


def test_another_class_s_address_and_a_finalizer_of_its_own_are_nobody_else_s_business() -> None:
    assert model.faults("s", with_finalizers(FOREIGN, FINALIZER, manager=model.USER), {}, NODES) == []


def test_annotations_count_but_for_the_one_that_kubectl_rewrites() -> None:
    live, made = service(), service()
    live["metadata"]["annotations"] = {LAST_APPLIED: "{}"}
    assert model.faults("s", live, {"u1": (made, TARGETS)}, NODES) == []
    live["metadata"]["annotations"]["note"] = "1"
    assert model.faults("s", live, {"u1": (made, TARGETS)}, NODES) == ["s: outdated annotations"]


@pytest.mark.parametrize(
    ("one", "serves"),
    [
        pytest.param(node("n"), True, id="plain"),
        pytest.param(node("n", labels={model.EXCLUDE: "junk"}), False, id="junk"),
        pytest.param(node("n", labels={model.EXCLUDE: "f"}), True, id="false"),
        pytest.param(node("n", deletionTimestamp="now"), False, id="deleting"),
        pytest.param(node("n") | {"spec": {"taints": [{"key": model.LEAVING}]}}, False, id="leaving"),
        pytest.param(node("n") | {"spec": {"taints": [{"key": "other"}]}}, True, id="another-taint"),
    ],
)
def test_which_nodes_serve(one: Json, serves: bool) -> None:  # noqa: FBT001
    assert model.serves(one) is serves


@pytest.mark.parametrize(
    ("answered", "wrong"),
    [
        pytest.param({"ingress": [{"ip": "192.0.2.1", "ipMode": "Proxy"}]}, False, id="same"),
        pytest.param({"ingress": [{"ip": "192.0.2.2", "ipMode": "Proxy"}]}, True, id="another"),
        pytest.param({"ingress": [{"ip": "192.0.2.1"}]}, True, id="another-mode"),
        pytest.param({}, True, id="none"),
        pytest.param(None, False, id="nothing-answered"),
    ],
)
def test_the_address_is_what_the_cloud_said_last(answered: Json | None, wrong: bool) -> None:  # noqa: FBT001
    assert model.status_faults("s", service(), answered) == ["s: wrong address"] * wrong
    assert model.status_faults("s", None, answered) == []
