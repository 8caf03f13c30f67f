"""`ccm-lb dataplane validate|convert` as a user types it: output, streams, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ccm_lb.commands.main import execute
from tests.data import CLUSTERS

GOOD = '{"mode": "IPTABLES"}'
BAD = '{"mode": "iptables"}'


def run(*arguments: str) -> int:
    return execute(["dataplane", *arguments])


@pytest.fixture
def written(tmp_path: Path) -> dict[str, str]:
    texts = {"good": GOOD, "bad": BAD, "broken": "{", "secret": "kind: Secret\napiVersion: v1\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    return {name: str(tmp_path / name) for name in [*texts, "binary", "bom", "absent"]}


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["good"], 0),
        (["bom"], 0),
        (["bad"], 1),
        (["good", "bad"], 1),
        (["broken"], 2),
        (["secret"], 2),
        (["bad", "broken", "good"], 2),
        (["absent"], 2),
        (["binary"], 2),
        ([], 2),
    ],
)
def test_the_exit_code_is_that_of_the_worst_file(names: list[str], code: int, written: dict[str, str]) -> None:
    assert run("validate", *(written[name] for name in names)) == code


def test_every_file_is_looked_at_and_named(written: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    run("validate", written["broken"], written["bad"], written["good"])
    said = capsys.readouterr()
    assert f"{written['bad']}:1: error: mode:" in said.out
    assert f"{written['good']}: fine (AKS kube-proxy configuration)" in said.out
    assert said.err.startswith(f"ccm-lb: {written['broken']}:")
    assert len(said.err.splitlines()) == 1


def test_findings_as_json(written: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("validate", "-o", "json", written["good"], written["bad"], written["broken"]) == 2
    good, bad, broken = json.loads(capsys.readouterr().out)
    assert good["what"] == "AKS kube-proxy configuration"
    assert [(one["severity"], one["line"], one["key"]) for one in bad["findings"]] == [("error", 1, "mode")]
    assert "1:2: not JSON: " in broken["error"]


def test_a_file_in_its_own_form_is_written_anew(written: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", "--to", "aks", written["good"]) == 0
    assert json.loads(capsys.readouterr().out) == {"mode": "IPTABLES"}
    config_map = str(CLUSTERS / "kind.yaml")
    assert run("convert", "--to", "kubeproxy", config_map) == 0
    assert yaml.safe_load(capsys.readouterr().out)["conntrack"] == {"maxPerCore": 0}


def test_what_is_lost_is_said_beside_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    daemonset = str(CLUSTERS / "aks.yaml")
    assert run("convert", "--to", "aks", daemonset) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["ipvsConfig"]["tcpTimeoutSeconds"] == 900
    assert f"{daemonset}: lost: --conntrack-max-per-core: not translated" in said.err
    assert f"{daemonset}: lost: clusterCIDR: AKS has no key for it" in said.err
    assert run("convert", "--to", "aks", "-o", "json", daemonset) == 1
    assert "clusterCIDR: AKS has no key for it" in json.loads(capsys.readouterr().out)["lost"]


def test_what_would_be_refused_is_not_translated(written: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", "--to", "kubeproxy", written["bad"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "error: mode:" in said.err
    assert "nothing in it that can be translated" in said.err


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from ccm_lb.commands.main import execute; execute(['dataplane', '--help']);"
        "print([one for one in ('kopf', 'kubernetes', 'aiohttp') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=55)
    assert done.stdout.splitlines()[-1] == "[]"


def test_no_cluster_is_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "kubeconfig"
    cluster = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {"token": "t"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    config.write_text(yaml.safe_dump(content))
    assert run("detect", f"--kubeconfig={config}") == 3
    said = capsys.readouterr()
    assert said.err.startswith("ccm-lb: cannot tell: https://127.0.0.1:1 cannot be reached")
    assert len(said.err.splitlines()) == 1
    assert run("detect", f"--kubeconfig={config}", "-o", "json") == 3
    assert json.loads(capsys.readouterr().out)["error"].startswith("cannot tell: https://127.0.0.1:1 cannot be reached")
    assert run("detect", f"--kubeconfig={tmp_path / 'absent'}") == 2


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[", b"[x]", b"kind: Config\n", None])
@pytest.mark.parametrize("command", [["detect"], ["preflight"], ["verify"], ["explain", "a/b"], ["probe", "a/b"]])
def test_a_kubeconfig_that_is_none_is_bad_input_and_json_where_that_was_asked_for(
    command: list[str], content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "kubeconfig"
    if content is None:
        config.mkdir()
    else:
        config.write_bytes(content)
    code = run(*command, f"--kubeconfig={config}", "-o", "json")
    said = capsys.readouterr()
    assert code == 2, said.err
    assert str(config) in json.loads(said.out)["error"]
    assert len(said.err.splitlines()) == 1
