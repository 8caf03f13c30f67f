"""Whatever is given to `ccm-lb dataplane validate|convert`: a complaint that says what and where, and JSON where JSON was asked for."""

import io
import json
import sys
from pathlib import Path

import pytest

from ccm_lb.commands.main import execute
from tests.data import CLUSTERS

GOOD = '{"mode": "IPTABLES"}'
DISABLED = '{"enabled": false}'
UPSTREAM = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
CLUSTER = """\
apiVersion: baremetal.cluster.gke.io/v1
kind: Cluster
metadata:
  name: alice
  annotations:
    preview.baremetal.cluster.gke.io/NAME: "enable"
"""
ANNOTATION = "preview.baremetal.cluster.gke.io/kube-proxy-free"

Said = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file"


def typed(command: str, *arguments: str | Path) -> int:
    return execute(["dataplane", command, *map(str, arguments)])


# ---- JSON that is none


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", "1:2"),
        ('{\n  "mode": "IPVS",\n}\n', "3:1"),
        ('{\n  "mode": "IPVS"\n  "enabled": true\n}\n', "3:3"),
        ("{'mode': 'IPVS'}", "1:2"),
        ('{"mode": IPVS}', "1:10"),
        ('{"mode": "IPVS"}{}', "1:17"),
        ('{"mode": "IPVS"}\n---\n{"mode": "IPVS"}\n', "2:1"),
        ('\n\n  {"mode": "IP', "3:12"),
        ('{"mode": "IPVS"} // a comment', "1:18"),
        ("{{ .Values.proxy }}", "1:2"),
        ('{"NaN": NaN}', "1:9"),
        ('{"a": -Infinity}', "1:7"),
        (f'{{"a": {"1" * 5000}}}', ""),
        ("[\n" * 100_000, ""),
    ],
)
def test_what_begins_as_json_is_told_as_json_with_line_and_column(
    text: str, where: str, file: Path, capsys: Said
) -> None:
    file.write_text(text)
    code = typed("validate", file)
    said = capsys.readouterr()
    message = said.err + said.out
    assert code == 2, message
    assert "not JSON: " in message
    assert "YAML" not in message
    if where:
        assert f"{file}:{where}: not JSON: " in message, message


def test_yaml_in_braces_is_yaml_where_it_says_what_it_is(file: Path, capsys: Said) -> None:
    file.write_text("{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, mode: nftables}")
    assert typed("validate", file) == 0
    assert "fine (KubeProxyConfiguration)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"mode": 1e3}', "mode: 1000.0: not a mode"),
        ('{"mode": "\\ud83d\\ude00"}', 'mode: "\U0001f600": not a mode'),
        ('{"mode": "\\ud83d"}', "not a mode"),
        ('{"\\ud83d": 1}', "unknown key"),
        ('{"<<": {"mode": "IPVS"}}', "<<: unknown key"),
        ('{"mode": "a\x7fb"}', "not a mode"),
    ],
)
def test_json_is_read_as_json_and_any_text_in_it_can_be_shown(text: str, words: str, file: Path, capsys: Said) -> None:
    file.write_text(text)
    assert typed("validate", file) == 1
    assert words in capsys.readouterr().out


# ---- files


@pytest.fixture
def others(tmp_path: Path) -> dict[str, str]:
    """Files that are no text for us, and one that is."""
    (tmp_path / "good").write_text(GOOD)
    (tmp_path / "folder").mkdir()
    (tmp_path / "utf-16").write_bytes(GOOD.encode("utf-16"))
    (tmp_path / "binary").write_bytes(b"\x7fELF\x02\x01\xff")
    (tmp_path / "nul").write_bytes(b"\0" * 100)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "blank").write_bytes(b" \n\n")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    names = ["good", "folder", "utf-16", "binary", "nul", "empty", "blank", "loop", "absent"]
    return {**{name: str(tmp_path / name) for name in names}, "endless": "/dev/zero"}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("folder", "cannot be read: Is a directory"),
        ("utf-16", "UTF-16; expected UTF-8"),
        ("binary", "not UTF-8 text: byte 6"),
        ("nul", "neither JSON nor YAML"),
        ("empty", "empty; expected a JSON or YAML document"),
        ("blank", "empty; expected a JSON or YAML document"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
        ("absent", "cannot be read: No such file or directory"),
        ("endless", "larger than 4 MiB"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "convert"])
def test_a_file_that_is_none_is_named_and_the_others_are_looked_at(
    command: str, name: str, words: str, others: dict[str, str], capsys: Said
) -> None:
    names = [others[name], others["good"]] if command == "validate" else ["--to=kubeproxy", others[name]]
    assert typed(command, *names) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"ccm-lb: {others[name]}: {words}")
    assert len(said.err.splitlines()) == 1
    assert (f"{others['good']}: fine" in said.out) is (command == "validate")


@pytest.mark.parametrize("name", ["folder", "binary", "empty", "absent"])
def test_errors_are_json_where_json_was_asked_for(name: str, others: dict[str, str], capsys: Said) -> None:
    assert typed("validate", "-o", "json", others[name], others["good"]) == 2
    bad, good = json.loads(capsys.readouterr().out)
    assert (bad["file"], bad["what"], bad["findings"]) == (others[name], None, [])
    assert bad["error"].startswith(others[name])
    assert good["what"] == "AKS kube-proxy configuration"
    assert typed("convert", "-o", "json", "--to=aks", others[name]) == 2
    assert json.loads(capsys.readouterr().out)["error"].startswith(others[name])


def test_what_cannot_be_translated_is_json_too_with_its_findings(file: Path, capsys: Said) -> None:
    file.write_text('{"mode": "ipvs"}')
    assert typed("convert", "-o", "json", "--to=kubeproxy", file) == 2
    said = json.loads(capsys.readouterr().out)
    assert "nothing in it that can be translated" in said["error"]
    assert [one["key"] for one in said["findings"]] == ["mode"]


def test_standard_input_can_be_read_once(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert typed("validate", "-", "-") == 2
    said = capsys.readouterr()
    assert "standard input: fine" in said.out
    assert said.err == "ccm-lb: standard input: named twice; it can be read once\n"


def test_standard_input_that_is_closed_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Said) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert typed("validate", "-") == 2
    assert capsys.readouterr().err == "ccm-lb: standard input: cannot be read: it is closed\n"


# ---- several documents, and what stands twice


def test_one_configuration_is_translated_not_the_first_of_several(file: Path, capsys: Said) -> None:
    file.write_text(f"{UPSTREAM}---\n{UPSTREAM}")
    assert typed("validate", file) == 0
    capsys.readouterr()
    assert typed("convert", "--to=aks", file) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "2 configurations in it (lines 1 and 5); give one" in said.err


def test_a_list_as_kubectl_prints_it_is_looked_into(file: Path, capsys: Said) -> None:
    inner = CLUSTER.replace("NAME", "kube-proxy-fre").replace("\n", "\n  ").rstrip()
    file.write_text(f"apiVersion: v1\nkind: List\nitems:\n- {inner}\n")
    assert typed("validate", file) == 1
    assert f"{file}:9: error: metadata.annotations." in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        CLUSTER.replace("NAME", "kube-proxy-free") + '    preview.baremetal.cluster.gke.io/kube-proxy-free: "x"\n',
        CLUSTER.replace("NAME", "kube-proxy-free").replace("  name: alice", "  name: alice\n  name: bob"),
        (CLUSTERS / "kubeadm.yaml").read_text().replace("MODE", "ipvs").replace("kind: ConfigMap", "kind: ConfigMap\nkind: ConfigMap"),
        (CLUSTERS / "aks.yaml").read_text().replace("kind: DaemonSet", "kind: DaemonSet\nkind: DaemonSet"),
    ],
    ids=["annotation", "name", "ConfigMap", "DaemonSet"],
)  # fmt: skip
def test_a_key_that_stands_twice_is_a_mistake_in_every_kind(text: str, file: Path, capsys: Said) -> None:
    file.write_text(text)
    assert typed("validate", file) == 1
    assert "stands here twice" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: ConfigMap\ndata: [KubeProxyConfiguration]\n",
        "apiVersion: v1\nkind: ConfigMap\ndata: KubeProxyConfiguration\n",
        "apiVersion: v1\nkind: List\nitems: 5\n",
        "apiVersion: v1\nkind: List\nitems: [5, null, [x]]\n",
        *(
            f"apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {metadata}\nspec: {spec}\n"
            for metadata in ("{name: kube-proxy}", "[x]")
            for spec in (
                "x",
                "[x]",
                "{template: x}",
                "{template: {spec: x}}",
                "{template: {spec: {containers: x}}}",
                "{template: {spec: {nodeSelector: x, containers: []}}}",
                "{template: {spec: {containers: [x]}}}",
                "{template: {spec: {containers: [{command: kube-proxy}]}}}",
                "{template: {spec: {containers: [{command: [kube-proxy], env: [x]}]}}}",
                "{template: {spec: {containers: [{command: [kube-proxy], env: [{value: x}]}]}}}",
                "{template: {spec: {containers: [{command: [kube-proxy], volumeMounts: 5}]}}}",
            )
        ),
    ],
)
def test_an_object_that_is_misshapen_is_a_finding_or_a_complaint(text: str, file: Path, capsys: Said) -> None:
    file.write_text(text)
    assert typed("validate", file) in (1, 2)
    said = capsys.readouterr()
    assert str(file) in said.out + said.err


def test_a_long_value_that_stands_everywhere_is_shown_in_part(file: Path, capsys: Said) -> None:
    aliases = ", ".join(["*a"] * 15_000)
    file.write_text(f"{UPSTREAM}portRange: &a {'x' * 1_000_000}\nbindAddress: [{aliases}]\n")
    assert typed("validate", file) == 1
    assert len(capsys.readouterr().out) < 5_000


# ---- what is not deployed


def test_a_kube_proxy_that_is_disabled_becomes_nothing_that_runs(file: Path, capsys: Said) -> None:
    file.write_text(DISABLED)
    assert typed("convert", "--to=kubeproxy", file) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"{file}: lost: enabled false: AKS deploys no kube-proxy, so there is no configuration for one; "
        "something else must implement Services\n"
    )
    assert typed("convert", "--to=kubeproxy", "-o", "json", file) == 1
    assert json.loads(capsys.readouterr().out)["text"] is None
    assert typed("convert", "--to=aks", file) == 0
    assert json.loads(capsys.readouterr().out) == {"enabled": False}


# ---- near misses


@pytest.mark.parametrize(
    "name",
    [
        "kubeproxy-free",
        "kube-proxyfree",
        "kube_proxy_free",
        "kubeProxyFree",
        "Kube-Proxy-Free",
        "kube-proxy-fre",
        "kube-proxy-less",
        "no-kube-proxy",
        "disable-kube-proxy",
        "kube-proxy",
        "proxy-free",
    ],
)
def test_a_near_miss_behind_the_right_prefix_is_named_with_its_neighbour(name: str, file: Path, capsys: Said) -> None:
    file.write_text(CLUSTER.replace("NAME", name))
    assert typed("validate", file) == 1
    assert (
        f"preview.baremetal.cluster.gke.io/{name}: unknown annotation; did you mean {ANNOTATION}?"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "name",
    ["kube-proxy-free", "baremetal.cluster.gke.io/kubeproxyfree", "preview.baremetal.gke.io/kube-proxy-free",
     "preview.baremetal.cluster.gke.io.kube-proxy-free"],
)  # fmt: skip
def test_a_near_miss_with_another_prefix_is_named_too(name: str, file: Path, capsys: Said) -> None:
    file.write_text(CLUSTER.replace("preview.baremetal.cluster.gke.io/NAME", name))
    assert typed("validate", file) == 1
    assert f"unknown annotation; did you mean {ANNOTATION}?" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    ["preview.baremetal.cluster.gke.io/dual-stack", "example.com/kube-proxy-free", "example.com/owner"],
)
def test_other_annotations_are_left_alone(name: str, file: Path, capsys: Said) -> None:
    file.write_text(CLUSTER.replace("preview.baremetal.cluster.gke.io/NAME", name))
    assert typed("validate", file) == 0
    assert "did you mean" not in capsys.readouterr().out


@pytest.mark.parametrize("place", ["labels", "annotation"])
def test_the_annotation_in_another_place_is_told_where_it_belongs(place: str, file: Path, capsys: Said) -> None:
    file.write_text(CLUSTER.replace("NAME", "kube-proxy-free").replace("annotations:", f"{place}:"))
    assert typed("validate", file) == 1
    assert f"error: metadata.{place}.{ANNOTATION}: belongs to metadata.annotations" in capsys.readouterr().out


def test_another_version_of_the_clusters_api_is_told(file: Path, capsys: Said) -> None:
    file.write_text(CLUSTER.replace("gke.io/v1", "gke.io/v2"))
    assert typed("validate", file) == 1
    assert "not a cluster; expected baremetal.cluster.gke.io/v1, Cluster" in capsys.readouterr().out


# ---- how they end


@pytest.mark.parametrize("command", ["detect", "validate", "convert", "preflight", "verify", "explain", "probe"])
def test_every_command_tells_its_exit_codes(command: str, capsys: Said) -> None:
    assert typed(command, "--help") == 0
    _, _, codes = capsys.readouterr().out.partition("Exit codes:\n")
    assert {line.split()[0] for line in codes.splitlines() if line.strip()} >= {"0", "2"}
