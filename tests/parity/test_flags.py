"""Whoever swaps the binary keeps the command line."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ccm_lb.commands import main
from ccm_lb.settings import precedence, upstream
from ccm_lb.settings.config import Config
from tests.parity import flags

OURS = {precedence.key(field) for field in Config.model_fields} | {"logging-format"}
# Flags that are settings here, with a value that makes sense; and what such a one needs beside it.
MEANT = {
    "cloud-provider": ["--cloud-provider=fakecloud"],
    "leader-elect-resource-lock": ["--leader-elect-resource-lock=leases"],
    "leader-elect-lease-duration": ["--leader-elect-lease-duration=30s"],
    "leader-elect-retry-period": ["--leader-elect-retry-period=1s"],
    "leader-elect-renew-deadline": ["--leader-elect-renew-deadline=12s"],
    "kube-api-burst": ["--kube-api-burst=7", "--kube-api-qps=7"],
    "logging-format": ["--logging-format=json"],
    "controllers": ["--controllers=*"],
}


@pytest.fixture(scope="session")
def peer_flags(binaries: dict[str, Path]) -> list[flags.Flag]:
    shown = subprocess.run([str(binaries["peer"]), "--help"], capture_output=True, text=True, check=True)
    return flags.listed(shown.stdout)


@pytest.fixture
def machine(tmp_path: Path) -> list[str]:
    """The files that command lines made elsewhere name, as they are here."""
    cloud = tmp_path / "cloud.yaml"
    cloud.write_text("token: t\n")
    return [f"--cloud-config={cloud}", "--kubeconfig=", "--tls-cert-file=", "--tls-private-key-file="]


def accepts(arguments: Sequence[str], machine: Sequence[str]) -> bool:
    return main.execute(["config", "--output=json", *arguments, *machine]) == 0


def test_every_flag_of_the_peer_is_taken(
    peer_flags: list[flags.Flag], machine: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(peer_flags) > 60, "its help has another form"
    refused = []
    for name, value in peer_flags:
        given = MEANT.get(name, [f"--{name}={value}"])
        if not accepts(["--cloud-provider=fakecloud", *given], machine):
            refused.append(f"{given}: {capsys.readouterr().err}")
    assert not refused


def test_each_has_a_setting_or_a_reason(peer_flags: list[flags.Flag]) -> None:
    known = OURS | set(upstream.NO_EFFECT) | {upstream.CONTROLLERS}
    assert {name for name, _ in peer_flags} - known == set()
    assert OURS & set(upstream.NO_EFFECT) == set(), "it is honoured or has no effect, not both"


def test_a_switch_may_stand_alone_where_the_peer_s_may(peer_flags: list[flags.Flag]) -> None:
    alone = {name for name, value in peer_flags if value == "true" and name in upstream.NO_EFFECT}
    assert alone <= upstream.SWITCHES


@pytest.mark.parametrize("name", list(flags.INSTALLATIONS))
def test_the_command_line_of_an_installation_is_taken_as_it_is(
    name: str, machine: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert accepts(flags.INSTALLATIONS[name], machine), capsys.readouterr().err
    shown = json.loads(capsys.readouterr().out)
    for one in flags.INSTALLATIONS[name]:
        flag, _, value = one.removeprefix("--").partition("=")
        if flag in shown and value and not value.startswith("/"):
            assert str(shown[flag]["value"]).lower().removesuffix(".0") == value, flag
