"""A backend's settings, told from its model."""

from __future__ import annotations

import pathlib
from typing import Annotated, Literal

import pytest
from pydantic import ConfigDict, Field

from ccm_lb.backends import reference
from ccm_lb.backends.base import BackendConfig
from ccm_lb.backends.reference import Setting
from ccm_lb.commands import main
from ccm_lb.objects import IPMode
from ccm_lb.testing.memory import MemoryConfig


class Odd:
    """Something that JSON has no word for."""


class Acme(BackendConfig):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    url: str = Field(pattern="^https?://", description="Where it is.\n  In two lines.")
    token_file: pathlib.Path | None = None
    secret: str = Field(default="hidden", repr=False)
    ip_mode: IPMode = IPMode.VIP
    size: Literal["small", "large"] | None = None
    kind: Literal["one"] = "one"
    zones: tuple[str, ...] = ()
    retries: Annotated[int, Field(ge=1, le=9)] = 3
    rate: Annotated[float, Field(gt=0, lt=1)] | None = None
    fast: bool = False
    tags: dict[str, str] = Field(default_factory=dict, description="a|b")
    odd: Odd = Field(default_factory=Odd)
    odds: list[Odd] = Field(default_factory=list)


def test_every_key_has_its_values_default_and_meaning() -> None:
    assert reference.settings(Acme) == [
        Setting("url", "text that matches `^https?://`", "required", "Where it is. In two lines."),
        Setting("tokenFile", "the path of a file", "", ""),
        Setting("secret", "text", "", ""),
        Setting("ipMode", "`VIP`, `Proxy`", "VIP", ""),
        Setting("size", "`small`, `large`", "", ""),
        Setting("kind", "`one`", "one", ""),
        Setting("zones", "a list of text", "", ""),
        Setting("retries", "a whole number from 1 up to 9", "3", ""),
        Setting("rate", "a number above 0 below 1", "", ""),
        Setting("fast", "`true` or `false`", "false", ""),
        Setting("tags", "a mapping", "", "a|b"),
        Setting("odd", "a value", "", ""),
        Setting("odds", "a list of values", "", ""),
    ]


def test_the_table_is_markdown() -> None:
    lines = reference.table(Acme).splitlines()
    assert lines[2] == "| `url` | text that matches `^https?://` | required | Where it is. In two lines. |"
    assert lines[5] == "| `ipMode` | `VIP`, `Proxy` | `VIP` |  |"
    assert lines[12].endswith("| a\\|b |")


def test_a_backend_without_settings_says_so() -> None:
    assert reference.table(BackendConfig) == "It has no settings."


def test_a_model_of_objects_is_no_obstacle() -> None:
    assert [one.key for one in reference.settings(MemoryConfig)] == ["cloud"]


# ---- on the command line


def test_the_settings_of_an_installed_backend_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute(["backends", "fakecloud"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["KEY", "VALUES", "DEFAULT", "MEANING"]
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        *("url", "token", "tokenFile", "ipMode", "delivery", "proxyProtocol", "askKubeProxy"),
    ]


def test_as_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute(["backends", "fakecloud", "--output=json"]) == 0
    assert '"key": "tokenFile"' in capsys.readouterr().out


def test_a_backend_that_is_not_there_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute(["backends", "acme"]) == 2
    assert "no backend 'acme' is installed, expected one of: fakecloud" in capsys.readouterr().err
