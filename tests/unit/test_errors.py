"""What errors carry for whoever acts on them."""

from __future__ import annotations

import pytest

from ccm_lb.errors import NotFoundError, PortsError, RetryAfterError
from ccm_lb.objects import PortStatus


@pytest.mark.parametrize(("asked", "delay"), [(15.0, 15.0), (0.0, 0.0), (-1.0, 0.0)])
def test_a_pause_is_never_negative(asked: float, delay: float) -> None:
    error = RetryAfterError("it is being built", asked)
    assert (str(error), error.delay) == ("it is being built", delay)


def test_a_refusal_of_the_api_server_keeps_its_status_reason_and_pause() -> None:
    error = NotFoundError("services web not found", status=404, reason="NotFound", retry_after=2.0)
    assert (str(error), error.status, error.reason, error.retry_after) == (
        "services web not found",
        404,
        "NotFound",
        2.0,
    )


def test_ports_that_cannot_be_served_are_named_each_with_its_error() -> None:
    port = PortStatus(port=443, protocol="UDP", error="ProtocolNotSupported")
    assert PortsError("no", [port]).ports == (port,)
