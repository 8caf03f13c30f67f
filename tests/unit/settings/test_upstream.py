"""Upstream's flags: what is said of those that have no effect, and the one that chooses controllers."""

import pytest

from ccm_lb.errors import ConfigError
from ccm_lb.settings import precedence, upstream
from ccm_lb.settings.config import Config


def test_a_flag_without_effect_is_said_with_the_reason() -> None:
    (note,) = upstream.notes({"cluster-cidr": ["10.0.0.0/8"]})
    assert note == "--cluster-cidr has no effect: there is no controller of routes here, only that of Services"


def test_switches_are_flags_without_effect_and_settings_are_not() -> None:
    assert set(upstream.NO_EFFECT) >= upstream.SWITCHES
    assert {precedence.key(field) for field in Config.model_fields}.isdisjoint(upstream.NO_EFFECT)


@pytest.mark.parametrize(
    ("chosen", "note"),
    [
        pytest.param(["service-lb-controller"], "", id="ours"),
        pytest.param(["service"], "", id="its-old-name"),
        pytest.param(["*"], "", id="all"),
        pytest.param(["*", "-cloud-node"], "--controllers names -cloud-node", id="all-but-another"),
        pytest.param(["cloud-node, service"], "--controllers names cloud-node", id="beside-others"),
    ],
)
def test_the_choice_of_controllers_is_honoured_as_far_as_there_is_one(chosen: list[str], note: str) -> None:
    notes = list(upstream.notes({"controllers": chosen}))
    assert [one.partition(":")[0] for one in notes] == ([note] if note else [])


@pytest.mark.parametrize("chosen", [["cloud-node"], ["*", "-service-lb-controller"], ["-service"]])
def test_a_choice_that_leaves_out_the_only_one_is_refused(chosen: list[str]) -> None:
    with pytest.raises(ConfigError, match="leaves out service-lb-controller"):
        list(upstream.notes({"controllers": chosen}))
