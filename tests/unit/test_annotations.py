"""The annotations that the product reads."""

from __future__ import annotations

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.errors import TerminalError
from ccm_lb.objects import IPMode
from ccm_lb.testing import builders


@pytest.mark.parametrize(("value", "expected"), [(None, None), ("VIP", IPMode.VIP), ("Proxy", IPMode.PROXY)])
def test_the_ip_mode_is_asked_for_or_left_open(value: str | None, expected: IPMode | None) -> None:
    service = builders.service(builders.annotated(ccm_annotations.IP_MODE, value))
    assert ccm_annotations.parse(service).ip_mode is expected


@pytest.mark.parametrize("value", ["proxy", "vip", "", "Router", " VIP"])
def test_a_wrong_value_names_annotation_value_and_what_is_allowed(value: str) -> None:
    with pytest.raises(TerminalError) as caught:
        ccm_annotations.parse(builders.service(builders.annotated(ccm_annotations.IP_MODE, value)))
    assert str(caught.value) == (
        f'annotation ccm-lb.dev/ip-mode is "{value}": expected VIP or Proxy; remove it for the default'
    )
