"""The narrow models of Services and Nodes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ccm_lb import objects
from ccm_lb.objects import IPMode, Key, LoadBalancerIngress
from ccm_lb.testing import builders


def test_a_service_is_read_with_the_apis_names() -> None:
    service = builders.service(
        {
            "spec": {
                "loadBalancerIP": "203.0.113.40",
                "externalIPs": ["198.51.100.1"],
                "loadBalancerSourceRanges": ["192.0.2.0/24"],
                "loadBalancerClass": "example.com/ours",
                "healthCheckNodePort": 31555,
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
            }
        }
    )
    spec = service.spec
    assert (service.key, service.uid) == (Key("lb", "web"), builders.SERVICE_UID)
    assert (spec.load_balancer_ip, spec.external_ips) == ("203.0.113.40", ("198.51.100.1",))
    assert (spec.cluster_ips, spec.ip_families, spec.ip_family_policy) == (("10.96.0.10",), ("IPv4",), "SingleStack")
    assert (spec.load_balancer_source_ranges, spec.load_balancer_class) == (("192.0.2.0/24",), "example.com/ours")
    assert (spec.health_check_node_port, spec.external_traffic_policy) == (31555, "Cluster")
    assert spec.session_affinity_config == {"clientIP": {"timeoutSeconds": 10800}}
    [port] = spec.ports
    assert (port.name, port.port, port.protocol, port.target_port, port.node_port) == ("http", 80, "TCP", 8080, 30080)


def test_absent_fields_have_the_apis_defaults() -> None:
    service = objects.parse_service({"metadata": {"name": "web", "namespace": "lb", "uid": "u"}})
    assert service.spec.type == "ClusterIP"
    assert (service.spec.ports, service.spec.load_balancer_class) == ((), None)
    assert service.spec.allocate_load_balancer_node_ports
    assert service.status.load_balancer.ingress == ()
    assert (service.deleting, service.has_finalizer) == (False, False)


def test_a_named_target_port_stays_a_name() -> None:
    [port] = builders.service({"spec": {"ports": [{"port": 80, "targetPort": "web"}]}}).spec.ports
    assert port.target_port == "web"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        pytest.param("VIP", IPMode.VIP, id="vip"),
        pytest.param("Proxy", IPMode.PROXY, id="proxy"),
        pytest.param(None, None, id="absent"),
        pytest.param("Router", "Router", id="of-a-later-kubernetes"),
    ],
)
def test_an_ip_mode_is_known_or_stays_what_it_is(stored: str | None, expected: object) -> None:
    [entry] = builders.service(builders.published({"ip": "203.0.113.1", "ipMode": stored})).status.load_balancer.ingress
    assert entry.ip_mode == expected
    assert type(entry.ip_mode) is type(expected)


def test_the_ports_of_an_ingress_are_kept() -> None:
    ports = [{"port": 80, "protocol": "TCP", "error": "Broken"}]
    [entry] = builders.service(builders.published({"ip": "203.0.113.1", "ports": ports})).status.load_balancer.ingress
    assert [(port.port, port.protocol, port.error) for port in entry.ports] == [(80, "TCP", "Broken")]


def test_raw_is_the_object_without_managed_fields() -> None:
    obj = builders.service_json({"metadata": {"managedFields": [{"manager": "x"}]}, "spec": {"notInOurModel": 1}})
    raw = objects.parse_service(obj).raw
    assert "managedFields" not in raw["metadata"]
    assert raw["spec"] == obj["spec"]
    assert obj["metadata"]["managedFields"] == [{"manager": "x"}]


def test_raw_of_a_node_leaves_out_what_fills_memory() -> None:
    obj = builders.node_json(
        "n1", {"status": {"images": [{"names": ["x"]}], "volumesInUse": ["v"], "phase": "Running"}}
    )
    assert set(objects.parse_node(obj).raw["status"]) == {"addresses", "phase"}


def test_a_node_without_status_is_a_node() -> None:
    assert objects.parse_node({"metadata": {"name": "n1", "uid": "u"}}).internal_ips == ()


def test_internal_ips_keep_their_order_and_nothing_else_is_one() -> None:
    addresses = [
        {"type": "Hostname", "address": "n1"},
        {"type": "InternalIP", "address": "2001:db8::11"},
        {"type": "ExternalIP", "address": "198.51.100.1"},
        {"type": "InternalIP", "address": "192.0.2.11"},
        {"type": "Unheard", "address": "?"},
    ]
    assert builders.node("n1", {"status": {"addresses": addresses}}).internal_ips == ("2001:db8::11", "192.0.2.11")


def test_raw_is_neither_compared_by_json_nor_printed() -> None:
    service = builders.service()
    assert "raw" not in service.model_dump()
    assert "raw" not in repr(service)


def test_models_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        builders.service().spec.type = "ClusterIP"  # type: ignore[misc]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"metadata": {"name": "web"}}, id="no-uid"),
        pytest.param({"metadata": {"name": "web", "uid": "u"}, "spec": {"ports": 7}}, id="ports-no-list"),
        pytest.param(
            {"metadata": {"name": "web", "uid": "u"}, "spec": {"ports": [{"port": "x"}]}}, id="port-no-number"
        ),
    ],
)
def test_what_is_no_service_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        objects.parse_service(broken)


def test_a_key_is_written_as_kubectl_writes_it() -> None:
    assert str(Key("lb", "web")) == "lb/web"


def test_an_ingress_is_made_by_our_names_and_written_with_the_apis() -> None:
    entry = LoadBalancerIngress(ip="203.0.113.1", ip_mode=IPMode.PROXY)
    assert entry.model_dump(by_alias=True, exclude_defaults=True) == {"ip": "203.0.113.1", "ipMode": "Proxy"}


@pytest.mark.parametrize(("family", "ip"), [("IPv4", "192.0.2.11"), ("IPv6", "2001:db8::11")])
def test_traffic_goes_to_a_nodes_first_address_of_the_family(family: str, ip: str) -> None:
    node = builders.node("n1", builders.addresses("2001:db8::11", "192.0.2.11", "192.0.2.99", "2001:db8::99"))
    assert node.internal_ip(family) == ip
    assert builders.node("n1", builders.addresses()).internal_ip(family) is None


def test_a_nodes_addresses_are_its_ips_and_no_names() -> None:
    node = builders.node(
        "n1",
        {
            "status": {
                "addresses": [
                    builders.internal_ip("192.0.2.11"),
                    {"type": "ExternalIP", "address": "203.0.113.11"},
                    {"type": "Hostname", "address": "n1"},
                ]
            }
        },
    )
    assert node.ips == ("192.0.2.11", "203.0.113.11")
