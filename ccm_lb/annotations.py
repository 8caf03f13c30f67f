"""The annotations that this product reads, typed and checked. A bad value is an error of the Service, never a silent default."""

from __future__ import annotations

import dataclasses

from ccm_lb.errors import TerminalError
from ccm_lb.objects import IPMode, Service

IP_MODE = "ccm-lb.dev/ip-mode"


@dataclasses.dataclass(frozen=True)
class Options:
    """What a Service's annotations ask for; None where they say nothing."""

    ip_mode: IPMode | None = None


def parse(service: Service) -> Options:
    """
    The options of `service`.

    Raises:
        TerminalError: a value is not one that the annotation takes; names annotation, value and what is allowed.
    """
    return Options(ip_mode=_ip_mode(service.metadata.annotations.get(IP_MODE)))


def _ip_mode(value: str | None) -> IPMode | None:
    if value is None:
        return None
    try:
        return IPMode(value)
    except ValueError:
        allowed = " or ".join(mode.value for mode in IPMode)
        raise TerminalError(
            f'annotation {IP_MODE} is "{value}": expected {allowed}; remove it for the default'
        ) from None
