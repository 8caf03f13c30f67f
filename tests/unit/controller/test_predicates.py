"""The questions that decide what is done, as tables."""

from __future__ import annotations

import pytest

from ccm_lb.controller import predicates
from ccm_lb.controller.predicates import Scope
from ccm_lb.objects import EXCLUDE_LABEL, TO_BE_DELETED_TAINT
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak

OURS = Scope(frozenset({"example.com/ours"}))
ONLY_OURS = Scope(frozenset({"example.com/ours"}), unclassed=False)


@pytest.mark.parametrize(
    ("scope", "load_balancer_class", "expected"),
    [
        pytest.param(Scope(), None, True, id="default-unset"),
        pytest.param(Scope(), "example.com/ours", False, id="default-set"),
        pytest.param(OURS, None, True, id="ours-unset"),
        pytest.param(OURS, "example.com/ours", True, id="ours-set"),
        pytest.param(OURS, "example.com/other", False, id="ours-other"),
        pytest.param(OURS, "", False, id="ours-empty"),
        pytest.param(ONLY_OURS, None, False, id="only-ours-unset"),
        pytest.param(ONLY_OURS, "example.com/ours", True, id="only-ours-set"),
    ],
)
def test_the_class_decides_the_scope(scope: Scope, load_balancer_class: str | None, expected: bool) -> None:  # noqa: FBT001
    assert predicates.in_scope(builders.service(builders.of_class(load_balancer_class)), scope) is expected


@pytest.mark.parametrize(
    ("tweaks", "expected"),
    [
        pytest.param([], (True, False, True), id="plain"),
        pytest.param([builders.finalizers()], (True, False, True), id="served"),
        pytest.param([builders.finalizers(), builders.deleting()], (True, True, True), id="served-deleting"),
        pytest.param([builders.deleting(), builders.finalizers("x/y")], (True, False, True), id="deleting-not-served"),
        pytest.param([builders.of_type("ClusterIP")], (False, False, False), id="other-type"),
        pytest.param(
            [builders.of_type("NodePort"), builders.finalizers()], (False, True, True), id="other-type-served"
        ),
        pytest.param([builders.of_class("x/y")], (False, False, False), id="other-class"),
        pytest.param([builders.of_class("x/y"), builders.finalizers()], (False, True, True), id="other-class-served"),
        pytest.param(
            [builders.of_type("ClusterIP"), builders.finalizers("x/y")], (False, False, False), id="foreign-only"
        ),
    ],
)
def test_what_is_wanted_cleaned_up_and_remembered(tweaks: list[Tweak], expected: tuple[bool, bool, bool]) -> None:
    service = builders.service(*tweaks)
    questions = (predicates.wants_load_balancer, predicates.needs_cleanup, predicates.concerns_us)
    assert tuple(question(service, Scope()) for question in questions) == expected


PORTS = builders.service_json()["spec"]["ports"]


@pytest.mark.parametrize(
    ("tweak", "matters"),
    [
        pytest.param(builders.of_type("NodePort"), True, id="type"),
        pytest.param(builders.of_class("x/y"), True, id="class"),
        pytest.param({"spec": {"loadBalancerSourceRanges": ["192.0.2.0/24"]}}, True, id="source-ranges"),
        pytest.param(builders.port(81), True, id="port"),
        pytest.param(builders.port(80, node_port=30081), True, id="node-port"),
        pytest.param(builders.port(80, protocol="UDP"), True, id="protocol"),
        pytest.param(builders.port(80, name="web"), True, id="port-name"),
        pytest.param({"spec": {"ports": [{**PORTS[0], "targetPort": 8081}]}}, True, id="target-port"),
        pytest.param({"spec": {"ports": [{**PORTS[0], "appProtocol": "http"}]}}, True, id="app-protocol"),
        pytest.param({"spec": {"sessionAffinity": "ClientIP"}}, True, id="affinity"),
        pytest.param(
            {"spec": {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 1}}}}, True, id="affinity-config"
        ),
        pytest.param({"spec": {"loadBalancerIP": "203.0.113.9"}}, True, id="requested-ip"),
        pytest.param({"spec": {"externalIPs": ["198.51.100.1"]}}, True, id="external-ips"),
        pytest.param(builders.annotated("a/b", "c"), True, id="annotation"),
        pytest.param(builders.uid("another"), True, id="uid"),
        pytest.param({"spec": {"externalTrafficPolicy": "Local"}}, True, id="traffic-policy"),
        pytest.param({"spec": {"healthCheckNodePort": 31555}}, True, id="health-check-port"),
        pytest.param({"spec": {"ipFamilies": ["IPv6"]}}, True, id="families"),
        pytest.param({"spec": {"ipFamilyPolicy": "PreferDualStack"}}, True, id="family-policy"),
        pytest.param({"spec": {"allocateLoadBalancerNodePorts": False}}, True, id="node-port-allocation"),
        pytest.param(builders.labelled("a", "b"), False, id="label"),
        pytest.param({"spec": {"selector": {"app": "other"}}}, False, id="selector"),
        pytest.param(builders.published({"ip": "203.0.113.1"}), False, id="status"),
        pytest.param(builders.finalizers(), False, id="finalizer"),
        pytest.param(builders.version(7), False, id="version"),
        pytest.param({"spec": {"internalTrafficPolicy": "Local"}}, False, id="internal-traffic-policy"),
        pytest.param(
            builders.annotated("kubectl.kubernetes.io/last-applied-configuration", "{}"),
            False,
            id="kubectls-annotation",
        ),
    ],
)
def test_what_a_load_balancer_depends_on(tweak: Tweak, matters: bool) -> None:  # noqa: FBT001
    before, after = builders.service(), builders.service(tweak)
    assert (predicates.load_balancer_inputs(before) != predicates.load_balancer_inputs(after)) is matters


def test_the_order_of_families_and_ports_matters() -> None:
    one, other = (
        builders.service({"spec": {"ipFamilies": families}}) for families in (["IPv4", "IPv6"], ["IPv6", "IPv4"])
    )
    assert predicates.load_balancer_inputs(one) != predicates.load_balancer_inputs(other)
    ports = [builders.port_json(80), builders.port_json(443, 30443, name="https")]
    one, other = (builders.service({"spec": {"ports": listed}}) for listed in (ports, ports[::-1]))
    assert predicates.load_balancer_inputs(one) != predicates.load_balancer_inputs(other)


def test_the_inputs_can_be_hashed() -> None:
    assert hash(predicates.load_balancer_inputs(builders.service())) == hash(
        predicates.load_balancer_inputs(builders.service())
    )


# ---- nodes


@pytest.mark.scenario("B60")
@pytest.mark.parametrize(
    ("value", "included"),
    [
        *[pytest.param(value, True, id=f"false-{value}") for value in ("0", "f", "F", "false", "False", "FALSE")],
        *[pytest.param(value, False, id=f"true-{value}") for value in ("1", "t", "T", "true", "True", "TRUE")],
        *[pytest.param(value, False, id=f"junk-{value}") for value in ("", "junk", "no", "FaLsE", " false")],
    ],
)
def test_the_exclusion_label_is_read_as_go_reads_a_bool(value: str, included: bool) -> None:  # noqa: FBT001
    assert predicates.node_included(builders.node("n1", builders.labelled(EXCLUDE_LABEL, value))) is included


@pytest.mark.parametrize(
    ("tweak", "included"),
    [
        pytest.param({}, True, id="plain"),
        pytest.param(builders.deleting(), False, id="deleting"),
        pytest.param(builders.tainted(TO_BE_DELETED_TAINT), True, id="about-to-be-scaled-down"),
        pytest.param(builders.tainted("node.kubernetes.io/not-ready"), True, id="not-ready-taint"),
        pytest.param({"spec": {"unschedulable": True}}, True, id="cordoned", marks=pytest.mark.scenario("B61")),
        pytest.param({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, True, id="not-ready"),
        pytest.param({"spec": {"providerID": None}}, True, id="no-provider-id"),
        pytest.param(builders.labelled("node-role.kubernetes.io/control-plane", ""), True, id="control-plane"),
    ],
)
def test_which_nodes_get_traffic(tweak: Tweak, included: bool) -> None:  # noqa: FBT001
    assert predicates.node_included(builders.node("n1", tweak)) is included


@pytest.mark.parametrize(("draining", "names"), [(False, ["n2"]), (True, ["n1", "n2"])])
def test_nodes_that_are_about_to_go_are_for_load_balancers_that_drain_them(draining: bool, names: list[str]) -> None:  # noqa: FBT001
    going, stays = builders.node("n1", builders.tainted(TO_BE_DELETED_TAINT)), builders.node("n2")
    assert (predicates.about_to_go(going), predicates.about_to_go(stays)) == (True, False)
    found = predicates.eligible_nodes([stays, going], draining=draining)
    assert [node.name for node in found] == names


def test_eligible_nodes_are_sorted_by_name() -> None:
    nodes = [builders.node("n3"), builders.node("n1"), builders.node("n2", builders.deleting())]
    assert [node.name for node in predicates.eligible_nodes(nodes)] == ["n1", "n3"]


@pytest.mark.parametrize(
    ("tweak", "same"),
    [
        pytest.param({"spec": {"providerID": "fake://other"}}, False, id="provider-id"),
        pytest.param(builders.addresses("192.0.2.99"), False, id="internal-ip"),
        pytest.param(builders.labelled("zone", "b"), True, id="label"),
        pytest.param(builders.version(7), True, id="version"),
        pytest.param({"spec": {"unschedulable": True}}, True, id="cordon"),
    ],
)
def test_what_makes_a_node_another_target(tweak: Tweak, same: bool) -> None:  # noqa: FBT001
    before, after = builders.node(), builders.node("n1", tweak)
    assert (predicates.node_set([before]) == predicates.node_set([after])) is same


def test_a_set_of_nodes_has_no_order() -> None:
    nodes = builders.nodes()
    assert predicates.node_set(nodes) == predicates.node_set(nodes[::-1])


@pytest.mark.parametrize(
    ("tweaks", "may"),
    [
        pytest.param([], True, id="a load balancer"),
        pytest.param([builders.of_class("example.com/another")], True, id="another class"),
        pytest.param([builders.of_type("ClusterIP")], False, id="no load balancer"),
        pytest.param([builders.of_type("ClusterIP"), builders.finalizers()], True, id="its finalizer"),
        pytest.param([builders.of_type("ClusterIP"), builders.annotated("ccm-lb.dev/paused", "x")], True, id="paused"),
        pytest.param([builders.of_type("ClusterIP"), builders.annotated("ccm-lb.dev/keep", "true")], True, id="kept"),
    ],
)
def test_who_may_want_the_load_balancer_that_bears_its_uid(tweaks: list[Tweak], may: bool) -> None:  # noqa: FBT001
    assert predicates.may_want_it(builders.service(*tweaks)) is may


@pytest.mark.parametrize(
    ("tweaks", "expected"),
    [
        pytest.param((builders.finalizers(), builders.published({"ip": "203.0.113.1"})), True, id="published"),
        pytest.param((builders.finalizers(),), False, id="no address yet"),
        pytest.param((builders.published({"ip": "203.0.113.1"}),), False, id="without our finalizer"),
        pytest.param(
            (builders.finalizers(), builders.published({"ip": "203.0.113.1"}), builders.deleting()),
            False,
            id="deleting",
        ),
    ],
)
def test_a_service_is_served_as_far_as_it_says_itself(tweaks: tuple[Tweak, ...], expected: bool) -> None:  # noqa: FBT001
    assert predicates.is_served(builders.service(*tweaks)) is expected
