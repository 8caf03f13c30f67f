"""The command line: four sources and their precedence, one line for a mistake, a quick --help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ccm_lb.commands import main
from ccm_lb.settings import precedence
from ccm_lb.settings.config import Config

# For every setting two values that differ from its default and from each other: as a flag's text, and what `config` then shows.
SAMPLES: dict[str, list[tuple[str, object]]] = {
    "cloud_provider": [("one", "one"), ("two", "two")],
    "cloud_config": [("a.yaml", "a.yaml"), ("b.yaml", "b.yaml")],
    "cluster_name": [("a", "a"), ("b", "b")],
    "kubeconfig": [("a", "a"), ("b", "b")],
    "master": [("https://a", "https://a"), ("https://b", "https://b")],
    "kube_api_qps": [("5", 5.0), ("7.5", 7.5)],
    "kube_api_burst": [("5", 5), ("7", 7)],
    "load_balancer_class": [("a,example.com/b", ["a", "example.com/b"]), ("c", ["c"])],
    "handle_unclassed": [("false", False), ("F", False)],
    "allow_addresses": [("loopback,node", ["loopback", "node"]), ("multicast", ["multicast"])],
    "hostname_suffix": [("a.example", "a.example"), ("b.example", "b.example")],
    "concurrent_service_syncs": [("1", 1), ("2", 2)],
    "node_sync_debounce": [("3s", 3.0), ("0", 0.0)],
    "drift": [("report", "report"), ("off", "off")],
    "delete_orphans_after": [("1h", 3600.0), ("2h", 7200.0)],
    "drift_period": [("1m", 60.0), ("2m", 120.0)],
    "resync_period": [("1m30s", 90.0), ("10", 10.0)],
    "leader_elect": [("false", False), ("0", False)],
    "leader_elect_lease_duration": [("1m", 60.0), ("30s", 30.0)],
    "leader_elect_renew_deadline": [("9s", 9.0), ("8.5s", 8.5)],
    "leader_elect_retry_period": [("500ms", 0.5), ("1s", 1.0)],
    "leader_elect_resource_lock": [("leases", "leases"), ("leases", "leases")],
    "leader_elect_resource_name": [("a", "a"), ("b", "b")],
    "leader_elect_resource_namespace": [("a", "a"), ("b", "b")],
    "bind_address": [("127.0.0.1", "127.0.0.1"), ("::", "::")],
    "port": [("1", 1), ("0", 0)],
    "secure_port": [("1", 1), ("2", 2)],
    "tls_cert_file": [("a.pem", "a.pem"), ("b.pem", "b.pem")],
    "tls_private_key_file": [("a.pem", "a.pem"), ("b.pem", "b.pem")],
    "v": [("2", 2), ("4", 4)],
    "log_format": [("json", "json"), ("json", "json")],
    "shutdown_grace": [("1s", 1.0), ("20", 20.0)],
}
# What a setting needs beside it to be valid.
COMPANIONS = {
    "kube_api_burst": ["--kube-api-qps=1"],
    "handle_unclassed": ["--load-balancer-class=x"],
    "tls_cert_file": ["--tls-private-key-file=k", "--secure-port=10259"],
    "tls_private_key_file": ["--tls-cert-file=c", "--secure-port=10259"],
}
FIELDS = list(Config.model_fields)


class Shell:
    """Runs `ccm-lb config`, with environment and files as a user has them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._environment = monkeypatch
        self._output = capsys

    def export(self, name: str, value: str) -> None:
        self._environment.setenv(name, value)

    def file(self, content: object) -> str:
        path = self.folder / "ccm.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
        return str(path)

    def effective(self, *arguments: str) -> dict[str, dict[str, Any]]:
        main.execute(["config", "--output=json", *arguments])  # what a sample names need not exist
        shown: dict[str, dict[str, Any]] = json.loads(self._output.readouterr().out)
        return shown

    def complaint(self, *arguments: str) -> str:
        assert main.execute(arguments) == 2
        printed = self._output.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("ccm-lb: ")
        assert printed.err.count("\n") == 1
        return printed.err.strip()


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)


def with_provider(field: str) -> list[str]:
    return [*COMPANIONS.get(field, []), *([] if field == "cloud_provider" else ["--cloud-provider=fakecloud"])]


# ---- the four sources


@pytest.mark.parametrize("field", FIELDS)
def test_every_setting_is_a_flag(field: str, shell: Shell) -> None:
    text, value = SAMPLES[field][0]
    shown = shell.effective(*with_provider(field), f"{precedence.flag(field)}={text}")
    assert shown[precedence.key(field)] == {"value": value, "source": "flag"}


@pytest.mark.parametrize("field", FIELDS)
def test_every_setting_is_an_environment_variable(field: str, shell: Shell) -> None:
    text, value = SAMPLES[field][0]
    shell.export(precedence.variable(field), text)
    assert shell.effective(*with_provider(field))[precedence.key(field)] == {"value": value, "source": "env"}


@pytest.mark.parametrize("field", FIELDS)
def test_every_setting_is_a_key_of_the_file(field: str, shell: Shell) -> None:
    _, value = SAMPLES[field][0]
    shown = shell.effective(*with_provider(field), "--config", shell.file({precedence.key(field): value}))
    assert shown[precedence.key(field)] == {"value": value, "source": "file"}


@pytest.mark.parametrize("field", FIELDS)
def test_a_setting_of_the_file_may_be_text_as_after_the_flag(field: str, shell: Shell) -> None:
    text, value = SAMPLES[field][1]
    shown = shell.effective(*with_provider(field), "--config", shell.file({precedence.key(field): text}))
    assert shown[precedence.key(field)] == {"value": value, "source": "file"}


def test_flag_goes_before_environment_before_file_before_default(shell: Shell) -> None:
    file = shell.file({"leader-elect-lease-duration": "30s", "cluster-name": "from-file", "master": "from-file"})
    shell.export("CCM_LB_LEADER_ELECT_LEASE_DURATION", "40s")
    shell.export("CCM_LB_CLUSTER_NAME", "from-env")
    shown = shell.effective("--cloud-provider=x", "--config", file, "--leader-elect-lease-duration=50s")
    assert shown["leader-elect-lease-duration"] == {"value": 50.0, "source": "flag"}
    assert shown["cluster-name"] == {"value": "from-env", "source": "env"}
    assert shown["master"] == {"value": "from-file", "source": "file"}
    assert shown["leader-elect-retry-period"] == {"value": 2.0, "source": "default"}


@pytest.mark.parametrize("field", [field for field in FIELDS if SAMPLES[field][0] != SAMPLES[field][1]])
def test_the_environment_goes_before_the_file_for_every_setting(field: str, shell: Shell) -> None:
    (file_text, _), (env_text, value) = SAMPLES[field]
    shell.export(precedence.variable(field), env_text)
    shown = shell.effective(*with_provider(field), "--config", shell.file({precedence.key(field): file_text}))
    assert shown[precedence.key(field)] == {"value": value, "source": "env"}


def test_the_file_itself_may_be_named_by_the_environment(shell: Shell) -> None:
    shell.export("CCM_LB_CONFIG", shell.file({"cloud-provider": "acme"}))
    assert shell.effective()["cloud-provider"] == {"value": "acme", "source": "file"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(["--leader-elect"], True, id="alone"),
        pytest.param(["--leader-elect", "--v=1"], True, id="alone-before-another"),
        pytest.param(["--leader-elect=false"], False, id="gos-form"),
        pytest.param(["--leader-elect=true"], True, id="gos-form-true"),
        pytest.param(["--leader-elect=true", "--leader-elect=false"], False, id="the-last-one-counts"),
    ],
)
def test_a_switch_is_written_as_upstreams_operators_do(arguments: list[str], expected: bool, shell: Shell) -> None:  # noqa: FBT001
    assert shell.effective("--cloud-provider=x", *arguments)["leader-elect"] == {"value": expected, "source": "flag"}


@pytest.mark.parametrize("arguments", [["-v", "4"], ["-v4"], ["-v=4"], ["--v", "4"], ["--v=4"]], ids=" ".join)
def test_verbosity_is_written_as_upstreams_operators_do(arguments: list[str], shell: Shell) -> None:
    assert shell.effective("--cloud-provider=x", *arguments)["v"]["value"] == 4


def test_a_class_may_be_repeated(shell: Shell) -> None:
    shown = shell.effective("--cloud-provider=x", "--load-balancer-class=a", "--load-balancer-class", "b,c")
    assert shown["load-balancer-class"]["value"] == ["a", "b", "c"]


def test_a_variable_that_the_kubelet_made_for_a_service_is_ignored(shell: Shell) -> None:
    shell.export("CCM_LB_PORT", "tcp://10.0.0.1:443")
    assert shell.effective("--cloud-provider=x")["port"] == {"value": 10258, "source": "default"}


def test_an_empty_file_sets_nothing(shell: Shell) -> None:
    assert shell.effective("--cloud-provider=x", "--config", shell.file(""))["port"]["source"] == "default"


# ---- mistakes


@pytest.mark.parametrize("command", ["run", "config"])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], "--cloud-provider is required: name one of the installed backends", id="no-provider"),
        pytest.param(["--leader-elct"], "No such option '--leader-elct'", id="unknown-flag"),
        pytest.param(["--port"], "Option '--port' requires an argument", id="no-value"),
        pytest.param(["stray"], "unexpected extra argument (stray)", id="stray-word"),
        pytest.param(["--cloud-provider=x", "--port=x"], "--port: got 'x', expected a port number", id="wrong-type"),
        pytest.param(["--config=/none.yaml"], "/none.yaml: cannot be read: No such file or directory", id="no-file"),
        pytest.param(["--config=/no\nne.yaml"], "/no ne.yaml: cannot be read", id="line-break-in-a-name"),
        pytest.param(["--config=/"], "/: cannot be read: Is a directory", id="directory"),
        pytest.param(["--cloud-provider=x", "--tls-cert-file=c"], "must be given together", id="conflict"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(
    command: str, arguments: list[str], expected: str, shell: Shell
) -> None:
    assert expected in shell.complaint(command, *arguments)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("leader-elct: true", "leader-elct: unknown key, did you mean leader-elect?", id="unknown-key"),
        pytest.param("leader-elect: maybe", "leader-elect: got 'maybe', expected true or false", id="wrong-type"),
        pytest.param("load-balancer-class: 5", "load-balancer-class: got 5, expected names", id="wrong-list"),
        pytest.param("- a", "expected settings as `key: value`, got list", id="a-list"),
        pytest.param("just words", "expected settings as `key: value`, got str", id="a-text"),
        pytest.param("on: 5", "True: expected a name as key", id="yaml-1.1-key"),
        pytest.param("? [a, b]\n: 5", "is not valid YAML", id="a-list-as-key"),
        pytest.param("port: 1\nport: 2", "the key 'port' stands twice", id="key-twice"),
        pytest.param("a: [", "is not valid YAML: while parsing", id="broken-yaml"),
        pytest.param("\x00", "is not valid YAML", id="control-characters"),
    ],
)
def test_a_mistake_in_the_file_names_file_and_key(content: str, expected: str, shell: Shell) -> None:
    file = shell.file(content)
    said = shell.complaint("config", "--cloud-provider=x", "--config", file)
    assert said.startswith(f"ccm-lb: {file}: ")
    assert expected in said


def test_a_file_in_another_encoding_is_refused(shell: Shell) -> None:
    path = shell.folder / "ccm.yaml"
    path.write_bytes(b"cluster-name: \xff\xfe")
    assert "is not a text in UTF-8" in shell.complaint("config", "--config", str(path))


def test_a_mistake_in_the_environment_names_the_variable(shell: Shell) -> None:
    shell.export("CCM_LB_RESYNC_PERIOD", "soon")
    assert "CCM_LB_RESYNC_PERIOD: got 'soon', expected a duration" in shell.complaint("config", "--cloud-provider=x")


def test_an_unknown_command_is_a_mistake(shell: Shell) -> None:
    assert shell.complaint("rum") == "ccm-lb: No such command 'rum'. Did you mean 'run'?"


@pytest.mark.parametrize("command", ["run", "config"])
def test_every_mistake_is_told_at_once(command: str, shell: Shell) -> None:
    shell.export("CCM_LB_LEADER_ELCT", "true")
    said = shell.complaint(
        command,
        f"--config={shell.file({'shutdwn-grace': '1s'})}",
        "--cloud-provider=acme",
        "--kubeconfig=/no/kubeconfig",
        "--tls-cert-file=/no/certificate",
        "--tls-private-key-file=/no/key",
        "--port=x",
    )
    expected = [
        "shutdwn-grace: unknown key, did you mean shutdown-grace?",
        "CCM_LB_LEADER_ELCT: unknown variable, did you mean CCM_LB_LEADER_ELECT?",
        "--port: got 'x'",
        "no backend 'acme' is installed",
        "--kubeconfig /no/kubeconfig cannot be read",
        "--tls-cert-file /no/certificate",
    ]
    assert [words for words in expected if words not in said] == []


@pytest.mark.parametrize("command", ["run", "config"])
def test_all_that_the_settings_name_is_looked_at(
    command: str, shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = shell.folder / "cloud.yaml"
    cloud.write_text("tokn: abc")
    arguments = ("--cloud-provider=fakecloud", f"--cloud-config={cloud}", "--kubeconfig=/no/kubeconfig", "--port=0")
    assert main.execute([command, *arguments]) == 2
    said = capsys.readouterr().err
    assert f"{cloud}: tokn: unknown key" in said
    assert "--kubeconfig /no/kubeconfig cannot be read" in said
    assert said.count("cannot be read") == 1


def test_config_ends_with_0_where_run_would_start(shell: Shell) -> None:
    cloud, kubeconfig = shell.folder / "cloud.yaml", shell.folder / "kubeconfig"
    cloud.write_text("token: abc")
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
        "clusters: [{name: c, cluster: {server: 'http://x'}}], users: [{name: u, user: {}}]}"
    )
    arguments = ("--cloud-provider=fakecloud", f"--cloud-config={cloud}", f"--kubeconfig={kubeconfig}")
    assert main.execute(["config", *arguments]) == 0


@pytest.mark.parametrize(
    "name",
    [
        *("CCM_LB_PORT", "CCM_LB_SERVICE_HOST", "CCM_LB_SERVICE_PORT", "CCM_LB_SERVICE_PORT_HTTP"),
        *("CCM_LB_PORT_10258_TCP", "CCM_LB_PORT_10258_TCP_PROTO", "CCM_LB_PORT_53_UDP_ADDR"),
        *("CCM_LB_METRICS_SERVICE_HOST", "CCM_LB_METRICS_PORT"),
    ],
)
def test_a_variable_of_the_kubelet_is_no_mistake(name: str, shell: Shell) -> None:
    shell.export(name, "tcp://10.0.0.1:443")
    assert shell.effective("--cloud-provider=x")["port"]["value"] == 10258


# ---- the other commands


def test_config_as_text_is_a_table_of_value_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    main.execute(["config", "--cloud-provider=x", "--resync-period=1m"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["NAME", "VALUE", "SOURCE"]
    assert ["resync-period", "60s", "flag"] in lines
    assert ["kubeconfig", "-", "default"] in lines
    assert len(lines) == 1 + len(FIELDS)


def test_version_names_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute(["version"]) == 0
    assert capsys.readouterr().out.startswith("ccm-lb ")


def test_version_is_json_for_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute(["version", "--output=json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"ccm-lb", "kopf", "python"}


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute([]) == 0
    printed = capsys.readouterr().out
    assert "Examples:" in printed
    assert "reference" not in printed


def test_help_lists_every_setting_under_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute(["run", "--help"]) == 0
    printed = capsys.readouterr().out
    assert [precedence.flag(field) for field in FIELDS if precedence.flag(field) not in printed] == []
    assert "\nLeader election:\n" in printed
    assert "[default: 15s]" in printed


def test_reference_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.execute(["reference"]) == 0
    assert capsys.readouterr().out == precedence.reference()


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["config", "--help"], ["version"]], ids=" ".join)
def test_what_needs_no_cluster_imports_neither_kopf_nor_kubernetes_nor_aiohttp(arguments: list[str]) -> None:
    program = (
        "import sys; from ccm_lb.commands import main; code = main.execute(sys.argv[1:]);"
        "heavy = {'kopf', 'kubernetes', 'aiohttp', 'prometheus_client', 'rich'} & set(sys.modules);"
        "sys.exit(code or (f'imported {heavy}' if heavy else 0))"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, done.stderr


def test_the_module_runs_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "ccm_lb", "run"], capture_output=True, text=True, timeout=55)
    assert done.returncode == 2
    assert done.stderr.startswith("ccm-lb: --cloud-provider is required")
    assert done.stderr.count("\n") == 1


def test_no_colour_goes_into_a_pipe() -> None:
    command = [sys.executable, "-m", "ccm_lb", "config", "--cloud-provider=x"]
    assert "\x1b" not in subprocess.run(command, capture_output=True, text=True, timeout=55).stdout
