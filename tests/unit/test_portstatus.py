"""What is said of ports that cannot be served."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_lb import portstatus
from ccm_lb.objects import LoadBalancerIngress, PortStatus, Service
from ccm_lb.testing import builders

UDP = PortStatus(port=443, protocol="UDP", error="ProtocolNotSupported")
MIXED = PortStatus(port=443, protocol="UDP", error="MixedProtocolNotSupported")
TCP = PortStatus(port=80, protocol="TCP")
BEFORE, NOW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"
MESSAGE = "The load balancer does not serve the ports 443/UDP (ProtocolNotSupported)"


def standing(**condition: Any) -> Service:
    other = {"type": "Other", "status": "True"}
    ours = [{"type": "LoadBalancerPortsError", "lastTransitionTime": BEFORE, **condition}] if condition else []
    return builders.service({"status": {"conditions": [other, *ours]}})


TRUE = standing(status="True", reason="ProtocolNotSupported", message=MESSAGE)
FALSE = standing(status="False", reason="PortsServed", message="The load balancer serves all ports")


@pytest.mark.scenario("B69")
@pytest.mark.parametrize(
    ("service", "ports", "written"),
    [
        pytest.param(standing(), [], None, id="nothing to say"),
        pytest.param(standing(), [UDP], ("True", "ProtocolNotSupported", NOW), id="begins"),
        pytest.param(
            standing(), [MIXED], ("True", "LoadBalancerMixedProtocolNotSupported", NOW), id="by upstream's name"
        ),
        pytest.param(TRUE, [UDP], None, id="stands"),
        pytest.param(TRUE, [MIXED], ("True", "LoadBalancerMixedProtocolNotSupported", BEFORE), id="for another reason"),
        pytest.param(TRUE, [], ("False", "PortsServed", NOW), id="ends"),
        pytest.param(FALSE, [], None, id="has ended"),
        pytest.param(FALSE, [UDP], ("True", "ProtocolNotSupported", NOW), id="begins again"),
    ],
)
def test_the_condition_follows_the_ports(
    service: Service, ports: list[PortStatus], written: tuple[str, str, str] | None
) -> None:
    condition = portstatus.condition(service, ports, NOW)
    if written is None:
        assert condition is None
    else:
        assert condition is not None
        assert (condition["status"], condition["reason"], condition["lastTransitionTime"]) == written


def test_the_condition_is_known_by_its_type() -> None:
    assert [portstatus.has_condition(one) for one in (standing(), TRUE, builders.service())] == [False, True, False]


def test_a_port_in_error_brings_all_ports_into_the_status() -> None:
    service = builders.service(
        {"spec": {"ports": [builders.port_json(80), builders.port_json(443, 30443, "UDP", "quic")]}}
    )
    entry = portstatus.completed(LoadBalancerIngress(ip="203.0.113.1", ports=(UDP,)), service)
    assert entry.ports == (TCP, UDP)


def test_ports_without_an_error_are_left_as_the_backend_gave_them() -> None:
    entry = LoadBalancerIngress(ip="203.0.113.1", ports=(TCP,))
    assert portstatus.completed(entry, builders.service()) is entry


def test_an_error_that_the_api_server_would_refuse_is_found_before() -> None:
    bad = LoadBalancerIngress(ip="203.0.113.1", ports=(PortStatus(port=80, protocol="TCP", error="does not work"),))
    with pytest.raises(ValueError, match="does not work"):
        portstatus.completed(bad, builders.service())


def test_each_error_counts_once() -> None:
    entries = [LoadBalancerIngress(ip=ip, ports=(TCP, UDP)) for ip in ("203.0.113.1", "2001:db8:f::1")]
    assert portstatus.errors(entries) == (UDP,)
