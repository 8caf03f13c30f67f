"""What becomes of a load balancer when its Service goes."""

from __future__ import annotations

import pytest

from ccm_lb import annotations as ccm_annotations
from ccm_lb.backends.base import Honoured
from ccm_lb.controller import endings
from ccm_lb.controller.endings import Ending
from ccm_lb.errors import TerminalError
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Tweak

KEEPS = frozenset({Honoured.KEEP})


def asked(name: str, value: str) -> Tweak:
    return builders.annotated(name, value)


@pytest.mark.parametrize(
    ("tweaks", "honours", "expected", "vanished"),
    [
        pytest.param((), frozenset(), Ending.DELETE, Ending.DELETE, id="as usual"),
        pytest.param((asked(ccm_annotations.KEEP, "false"),), KEEPS, Ending.DELETE, Ending.DELETE, id="declined"),
        pytest.param((asked(ccm_annotations.KEEP, "true"),), KEEPS, Ending.RELEASE, Ending.RELEASE, id="kept"),
        pytest.param(
            (asked(ccm_annotations.KEEP, "true"),), frozenset(), None, Ending.LEAVE, id="kept where nobody can"
        ),
        pytest.param((asked(ccm_annotations.KEEP, "yes"),), KEEPS, None, Ending.LEAVE, id="misspelt"),
        pytest.param((asked(ccm_annotations.PAUSED, "yes"),), KEEPS, None, Ending.LEAVE, id="a pause misspelt"),
        pytest.param((asked(ccm_annotations.PAUSED, "true"),), KEEPS, Ending.DELETE, Ending.LEAVE, id="paused"),
    ],
)
def test_what_cannot_be_undone_is_done_only_where_the_user_surely_wants_it(
    tweaks: tuple[Tweak, ...], honours: frozenset[str], expected: Ending | None, vanished: Ending
) -> None:
    service = builders.service(*tweaks)
    assert endings.of_vanished(service, honours) is vanished
    if expected is not None:
        assert endings.ending(service, honours) is expected
        return
    with pytest.raises(TerminalError, match=r"ccm-lb\.dev/"):
        endings.ending(service, honours)


def test_the_log_tells_what_was_done() -> None:
    assert [one.done for one in Ending] == ["deleted the load balancer", *["kept the load balancer"] * 2]
