"""What commands print holds no secret, and where nothing can be printed they say so, with an exit code of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest
import yaml

from ccm_lb.commands import main, outputs

CCM_LB = (sys.executable, "-m", "ccm_lb")
FILE = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n"


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from commands(command, (*path, name))


EVERY = [(*path, "--help") for path in commands(main.cli)]
PRINTING = [
    ("version",),
    ("backends",),
    ("backends", "fakecloud", "--output=json"),
    ("config", "--cloud-provider=fakecloud"),
    ("dataplane", "validate", "FILE"),
    ("dataplane", "convert", "--to=aks", "FILE"),
]


def named(arguments: Sequence[str], folder: Path) -> list[str]:
    file = folder / "kube-proxy.yaml"
    file.write_text(FILE)
    return [str(file) if one == "FILE" else one for one in arguments]


@pytest.mark.parametrize("arguments", [*EVERY, *PRINTING], ids=" ".join)
def test_a_full_disk_is_said_in_one_line(
    arguments: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        code = main.execute(named(arguments, tmp_path))
        monkeypatch.undo()
    assert (code, capsys.readouterr().err) == (
        outputs.UNWRITABLE,
        "ccm-lb: the output cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("arguments", [EVERY[0], PRINTING[0], PRINTING[-1]], ids=" ".join)
def test_a_reader_that_has_seen_enough_ends_it_without_a_word(arguments: Sequence[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*CCM_LB, *named(arguments, tmp_path)], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (outputs.CUT_OFF, "")


def test_where_nothing_at_all_can_be_written_the_exit_code_is_left() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*CCM_LB, "version"], stdout=full, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, done.stderr.count(b"\n")) == (74, 1)
        assert subprocess.run([*CCM_LB, "version"], stdout=full, stderr=full, check=False).returncode == 74
        assert subprocess.run([*CCM_LB, "frobnicate"], stdout=full, stderr=full, check=False).returncode == 2


# ---- secrets


def test_config_shows_no_password(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("text", "json"):
        main.execute(["config", "--cloud-provider=fakecloud", "--master=https://joe:pass-word@api", f"--output={form}"])
        told = "".join(capsys.readouterr())
        assert "https://***@api" in told
        assert "pass-word" not in told


def test_config_complains_of_a_secret_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cloud, kubeconfig = tmp_path / "cloud.yaml", tmp_path / "kubeconfig"
    cloud.write_text("token: the-token-of-the-cloud\nurl: the-token-of-the-cloud\n")
    user = {"password": "the-pass-word", "username": "joe"}
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "the-pass-word://x"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    files = (f"--cloud-config={cloud}", f"--kubeconfig={kubeconfig}")
    assert main.execute(["config", "--cloud-provider=fakecloud", *files]) == 2
    told = "".join(capsys.readouterr())
    assert "got '***'" in told
    assert "'***://x' is not a server's URL" in told
    assert "the-token-of-the-cloud" not in told
    assert "the-pass-word" not in told
    assert main.execute(["dataplane", "detect", f"--kubeconfig={kubeconfig}", "--output=json"]) == 2
    told = "".join(capsys.readouterr())
    assert "***" in told
    assert "the-pass-word" not in told


def test_a_mistake_of_the_program_is_told_with_its_traceback_and_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command("fail")
    def fail() -> None:
        outputs.secrets().add("the-secret-itself")
        raise ValueError("\x1b it is the-secret-itself") from OSError(5, "the-secret-itself")

    monkeypatch.setitem(main.cli.commands, "fail", fail)
    assert main.execute(["fail"]) == 1
    told = capsys.readouterr().err
    assert "the-secret-itself" not in told
    assert "\x1b" not in told
    assert "Traceback (most recent call last):" in told
    assert told.splitlines()[-1] == (
        "ccm-lb: a mistake in this program, please report it: ValueError: \ufffd it is *** <- OSError: [Errno 5] ***"
    )
