"""Files as users hand them in: what is found in them, on which line, and what is said of it."""

import pytest

from ccm_lb.dataplane.files import check, documents, findings
from ccm_lb.dataplane.files.findings import Severity
from ccm_lb.errors import ConfigError
from tests.data import CLUSTERS

EXAMPLE = """{
  "enabled": true,
  "mode": "IPVS",
  "ipvsConfig": {
    "scheduler": "LeastConnection",
    "TCPTimeoutSeconds": 900,
    "TCPFINTimeoutSeconds": 120,
    "UDPTimeoutSeconds": 300
  }
}
"""
UPSTREAM = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
CLUSTER = """apiVersion: baremetal.cluster.gke.io/v1
kind: Cluster
metadata:
  name: alice
  namespace: cluster-alice
  annotations:
    preview.baremetal.cluster.gke.io/kube-proxy-free: "enable"
"""


def said(text: str, file: str = "f") -> list[str]:
    """Everything but advice."""
    found = [one for checked in check.check(text, file) for one in checked.findings]
    return [str(one) for one in found if one.severity is not Severity.ADVICE]


def advice(text: str) -> str:
    found = [one for checked in check.check(text, "f") for one in checked.findings]
    return "\n".join(str(one) for one in found if one.severity is Severity.ADVICE)


# ---- the AKS form


def test_the_example_of_the_documentation_is_fine_and_comes_with_advice() -> None:
    assert said(EXAMPLE) == []
    for words in ("Azure Network Policy", "from 1.40 on and without it from 1.43 on", "2 x nodes", "whole cluster"):
        assert words in advice(EXAMPLE)
    (checked,) = check.check(EXAMPLE, "f")
    assert checked.aks is not None
    assert checked.aks.ipvs_config is not None
    assert checked.aks.ipvs_config.tcp_fin_timeout_seconds == 120


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mode": "ipvs"}', 'f:1: error: mode: "ipvs": written in another case than the service\'s; expected IPTABLES, IPVS or'),
        ('{"mode": "USERSPACE"}', 'f:1: error: mode: "USERSPACE": not a mode; expected IPTABLES, IPVS or NFTABLES'),
        ('{"mode": 5}', "f:1: error: mode: 5: not a mode"),
        ('{"enabled": "yes"}', 'f:1: error: enabled: "yes": not a boolean; expected true or false'),
        ('{\n  "enable": true\n}', "f:2: error: enable: unknown key; expected enabled, mode, ipvsConfig; did you mean enabled?"),
        ('{"x": 1}', "f:1: error: x: unknown key; expected enabled, mode, ipvsConfig"),
        ('{"ipvsConfig": {}}', "f:1: error: ipvsConfig: only with mode IPVS, and the mode is IPTABLES (the default)"),
        ('{"mode": "IPTABLES", "ipvsConfig": {}}', "f:1: error: ipvsConfig: only with mode IPVS, and the mode is IPTABLES"),
        ('{"mode": "IPVS", "ipvsConfig": []}', "f:1: error: ipvsConfig: []: not an object; expected {...}"),
        ('{"mode": "IPVS", "Mode": "IPVS"}', "f:1: error: Mode: stands here twice, the other time as mode"),
        ('{"mode": "IPVS",\n "mode": "IPVS"}', "f:2: error: mode: stands here twice; only the last one would count"),
        ('{"enabled": false, "mode": "IPTABLES"}', "f:1: warning: mode: means nothing with enabled false"),
        ("[]", "f: error: []: not an object; expected {...}"),
    ],
)  # fmt: skip
def test_what_the_service_would_refuse_or_ignore(text: str, message: str) -> None:
    assert any(one.startswith(message) for one in said(text)), said(text)
    assert findings.failing(check.check(text, "f")[0].findings)


@pytest.mark.parametrize("value", ["0", "-1", "1.5", '"900"', "true", "2147483648"])
@pytest.mark.parametrize("key", ["tcpTimeoutSeconds", "TCPFINTimeoutSeconds", "UDPTIMEOUTSECONDS"])
def test_timeouts_are_positive_integers(key: str, value: str) -> None:
    text = f'{{"mode": "IPVS",\n"ipvsConfig": {{\n"{key}": {value}}}}}'
    (message,) = said(text)
    assert message.startswith(f"f:3: error: ipvsConfig.{key}: {value}: not a positive integer; expected whole seconds")


def test_an_unknown_scheduler_is_named_with_the_known_ones() -> None:
    (message,) = said('{"mode": "IPVS", "ipvsConfig": {"scheduler": "LeastConn"}}')
    assert 'ipvsConfig.scheduler: "LeastConn": not a scheduler; expected LeastConnection or RoundRobin' in message
    assert message.endswith("did you mean LeastConnection?")


def test_a_key_that_stands_twice_is_said_where_it_stands() -> None:
    (message,) = said('{"mode": "IPVS", "ipvsConfig": {\n"scheduler": "RoundRobin",\n"scheduler": "LeastConnection"}}')
    assert message.startswith("f:3: error: ipvsConfig.scheduler: stands here twice")


def test_null_is_not_given() -> None:
    (checked,) = check.check('{"mode": "IPVS", "enabled": null, "ipvsConfig": {"scheduler": null}}', "f")
    assert checked.aks is not None
    assert checked.aks.to_json() == '{\n  "mode": "IPVS",\n  "ipvsConfig": {}\n}\n'
    assert check.check('{"ipvsConfig": null}', "f")[0].aks is not None


def test_a_disabled_kube_proxy_needs_something_in_its_place() -> None:
    assert "bring-your-own CNI" in advice('{"enabled": false}')
    assert said('{"enabled": false}') == []


def test_a_mode_in_the_wrong_case_is_said_once() -> None:
    assert len(said('{"mode": "Ipvs", "ipvsConfig": {"scheduler": "RoundRobin"}}')) == 1


def test_newer_modes_come_with_a_word() -> None:
    assert "newer API versions" in advice('{"mode": "NFTABLES"}')


def test_tabs_between_the_tokens_are_json() -> None:
    assert said('{\n\t"mode":\t"IPTABLES"\n}') == []


def test_yaml_without_a_kind_is_neither_form() -> None:
    (message,) = said("mode: IPVS\n")
    assert "the AKS form is JSON" in message


def test_yaml_is_no_file_for_the_azure_cli() -> None:
    from ccm_lb.dataplane.files import aks

    (document,) = documents.read("mode: IPTABLES", "f")
    config, found = aks.parse(document)
    assert config is None
    assert "the Azure CLI reads JSON" in str(found[0])


# ---- files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: empty; expected a JSON or YAML document"),
        ("---\n---\n", "f: empty"),
        ("a: [", "f:1: neither JSON nor YAML"),
        ("a:\n\tb: 1", "f:2: neither JSON nor YAML"),
        ("a: !!python/object:x.y {}", "f:1: neither JSON nor YAML"),
        ("a: 2001-99-99", "f: neither JSON nor YAML: month must be in 1..12"),
        ("&a [*a]", "f: neither JSON nor YAML"),
        ("\x00", "f: neither JSON nor YAML"),
        ("? [1]\n: 2\n", "f:1: neither JSON nor YAML: found unhashable key"),
        ("apiVersion: v1\nkind: Secret\n", "f: nothing in it that is known here; expected the AKS"),
        ("apiVersion: v1\nkind: ConfigMap\ndata: {a: b}\n", "f: nothing in it that is known here"),
        ("apiVersion: v1\nkind: ConfigMap\n", "f: nothing in it that is known here"),
        ("apiVersion: v1\nkind: ConfigMap\ndata: {a: 'KubeProxyConfiguration: 1'}\n", "f: nothing in it that is known"),
    ],
)
def test_files_that_are_no_input(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check.check(text, "f")
    assert str(error.value).startswith(message)


def test_a_file_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="f: not JSON: nested too deeply"):
        check.check("[\n" * 100_000, "f")


def test_json_that_is_larger_than_any_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match="f: nested too deeply"):
        check.check("[" * 600 + "]" * 600, "f")
    with pytest.raises(ConfigError, match="f: more than 20000 entries"):
        check.check(f"[{', '.join('1' * 20_001)}]", "f")


def test_a_small_file_that_is_endless_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 6)]
    with pytest.raises(ConfigError, match="more than 20000 entries"):
        documents.read("\n".join(lines), "f")


def test_lines_of_what_is_missing_are_those_of_what_holds_it() -> None:
    (document,) = documents.read("a:\n  b:\n  - 1\n", "f")
    assert [document.line(path) for path in [("a",), ("a", "b", 0), ("a", "c"), ("x",)]] == [1, 3, 1, None]
    assert documents.key(("a", "b", 0, "c")) == "a.b[0].c"
    assert documents.read("- 1", "f")[0].kind == ("", "")


def test_kubeadms_config_map_is_looked_into() -> None:
    text = (CLUSTERS / "kubeadm.yaml").read_text().replace("MODE", "ipsv")
    message = said(text, "cm.yaml")[0]
    assert message.startswith('cm.yaml data.config.conf:20: error: mode: "ipsv": not a mode')
    assert message.endswith("did you mean ipvs?")


def test_a_daemonset_is_read_by_its_flags() -> None:
    (checked,) = check.check((CLUSTERS / "aks.yaml").read_text(), "ds.yaml")
    assert checked.kube_proxy is not None
    assert checked.kube_proxy["ipvs"] == {
        "scheduler": "lc",
        "tcpTimeout": "900s",
        "tcpFinTimeout": "120s",
        "udpTimeout": "300s",
    }
    assert "--v: not translated" in checked.left


def test_a_daemonset_with_a_file_leads_on_to_it() -> None:
    text = (CLUSTERS / "kind.yaml").read_text()
    (message,) = said(text)
    assert "/var/lib/kube-proxy/config.conf" in message


def test_other_daemonsets_are_not_known() -> None:
    with pytest.raises(ConfigError):
        check.check((CLUSTERS / "gke-baremetal.yaml").read_text(), "f")


def test_the_wrong_version_of_the_right_kind_is_an_error() -> None:
    assert "expected kubeproxy.config.k8s.io/v1alpha1" in said("apiVersion: x/v1\nkind: KubeProxyConfiguration\n")[0]


# ---- the bare-metal Cluster


def test_the_example_cluster_is_fine() -> None:
    assert said(CLUSTER) == []
    assert "kernel 5.7.0 or newer" in advice(CLUSTER)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"enable"', '"enabled"', 'f:7: error: metadata.annotations.preview.baremetal.cluster.gke.io/kube-proxy-free: "enabled": '
                                  'not the value that removes kube-proxy; expected "enable"; did you mean "enable"?'),
        ('"enable"', '"x"', "not the value that removes kube-proxy"),
        ('"enable"', "true", 'true: annotations are strings; expected "enable"'),
        ("preview.baremetal.cluster.gke.io/kube-proxy-free", "baremetal.cluster.gke.io/kube-proxy-free", "did you mean preview."),
        ("    preview", "    a: 5\n    preview", "metadata.annotations.a: 5: annotations are strings"),
        ("baremetal.cluster.gke.io/v1\nkind: Cluster", "baremetal.cluster.gke.io/v1\nkind: NodePool", "not a cluster"),
        ("  name: alice\n", "", "metadata.name: missing"),
        ("  annotations:\n    preview", "  annotations: [x]\n  preview", "not a mapping"),
    ],
)  # fmt: skip
def test_a_cluster_file_that_would_not_do_it(old: str, new: str, message: str) -> None:
    found = said(CLUSTER.replace(old, new))
    assert any(message in one for one in found), found


def test_a_cluster_that_keeps_kube_proxy_is_told_how_not_to() -> None:
    text = CLUSTER.replace("    preview.baremetal.cluster.gke.io/kube-proxy-free", "    a/b")
    assert said(text) == []
    assert 'kube-proxy-free: "enable"' in advice(text)
    assert said(CLUSTER.partition("  annotations")[0]) == []


def test_findings_are_data_too() -> None:
    (found,) = [one for one in check.check('{"mode": "x"}', "f")[0].findings if one.severity is Severity.ERROR]
    assert found.as_json() == {
        "severity": "error",
        "file": "f",
        "line": 1,
        "key": "mode",
        "message": "not a mode",
        "value": '"x"',
        "allowed": "IPTABLES, IPVS or NFTABLES",
        "nearest": "",
    }
