"""What is said of ports that cannot be served."""

from __future__ import annotations

import pytest

from ccm_lb import portstatus
from ccm_lb.objects import LoadBalancerIngress, PortStatus
from ccm_lb.testing import builders

UDP = PortStatus(port=443, protocol="UDP", error="ProtocolNotSupported")
TCP = PortStatus(port=80, protocol="TCP")


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
