"""KubeProxyConfiguration: what is refused, by the field's name. The genuine kube-proxy is asked the same in the integration tests."""

from typing import Any

import pytest
import yaml

from ccm_lb.dataplane import addresses
from ccm_lb.dataplane.files import documents, durations, kubeproxy
from ccm_lb.dataplane.files.findings import Severity

HEADER = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}


def said(severity: Severity = Severity.ERROR, **content: Any) -> list[str]:
    (document,) = documents.read(yaml.safe_dump({**HEADER, **content}, sort_keys=False), "f")
    return [str(one) for one in kubeproxy.check(document) if one.severity is severity]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"mode": "IPVS"}, 'f:3: error: mode: "IPVS": not a mode; expected iptables, ipvs, nftables or nothing for the default'),
        ({"mode": "IPVS"}, "; did you mean ipvs?"),
        ({"mode": "ipvs", "featureGates": {"KubeProxyIPVS": False}}, "expected iptables, nftables or nothing"),
        ({"mode": 5}, "mode: 5: of the wrong type; expected a string"),
        ({"ipvs": []}, "ipvs: []: of the wrong type; expected a mapping"),
        ({"ipvs": {"tcpTimeout": 900}}, 'ipvs.tcpTimeout: 900: of the wrong type; expected a duration such as "15m0s"'),
        ({"ipvs": {"tcpTimeout": None}}, "ipvs.tcpTimeout: null, which is no duration"),
        ({"mode": "ipvs", "ipvs": {"tcpTimeout": "-1s"}}, 'ipvs.tcpTimeout: "-1s": negative'),
        ({"mode": "ipvs", "ipvs": {"scheduler": "lcc"}}, "not a scheduler of Linux"),
        ({"mode": "ipvs", "ipvs": {"excludeCIDRs": ["10.0.0.0/8", "x"]}}, 'f:7: error: ipvs.excludeCIDRs[1]: "x": not a range'),
        ({"ipvs": {"tcptimeout": "1s"}}, "logs it and goes on without it: unknown key; did you mean tcpTimeout?"),
        ({"iptables": {"masqueradeBit": 32}}, "iptables.masqueradeBit: 32: out of range; expected 0 to 31"),
        ({"mode": "nftables", "nftables": {"masqueradeBit": -1}}, "nftables.masqueradeBit: -1: out of range"),
        ({"oomScoreAdj": 1001}, "oomScoreAdj: 1001: out of range"),
        ({"conntrack": {"min": -1}}, "conntrack.min: -1: negative"),
        ({"configSyncPeriod": "-1s"}, 'configSyncPeriod: "-1s": negative'),
        ({"iptables": {"syncPeriod": "-1s"}}, "iptables.syncPeriod: \"-1s\": not positive"),
        ({"iptables": {"minSyncPeriod": "-1s"}}, "iptables.minSyncPeriod: \"-1s\": negative"),
        ({"iptables": {"minSyncPeriod": "1m"}}, "iptables.minSyncPeriod: \"1m\": longer than syncPeriod"),
        ({"mode": "x", "iptables": {"minSyncPeriod": "1m"}}, "longer than syncPeriod"),
        ({"bindAddress": "host"}, 'bindAddress: "host": not an IP address'),
        ({"metricsBindAddress": "host:1"}, "metricsBindAddress"),
        ({"metricsBindAddress": "1.2.3.4:0"}, "metricsBindAddress"),
        ({"metricsBindAddress": "x"}, "metricsBindAddress"),
        ({"nodePortAddresses": ["all", "all"]}, 'nodePortAddresses[1]: "all": stands here twice'),
        ({"nodePortAddresses": ["1.2.3.4"]}, 'nodePortAddresses[0]: "1.2.3.4": not a range'),
        ({"nodePortAddresses": "primary"}, "expected a list of strings"),
        ({"detectLocalMode": "nodeCIDR"}, "did you mean NodeCIDR?"),
        ({"detectLocalMode": "BridgeInterface"}, "detectLocal.bridgeInterface: missing: detectLocalMode BridgeInterface needs it"),
        ({"clusterCIDR": "10.0.0.0/8,11.0.0.0/8"}, "clusterCIDR"),
        ({"clusterCIDR": "x"}, "clusterCIDR"),
        ({"logging": {"format": "xml"}}, 'logging.format: "xml": not a format; expected text or json'),
        ({"enableProfiling": "true"}, "expected true or false"),
        ({"clientConnection": {"qps": "x"}}, "expected a number"),
        ({"clientConnection": {"burst": 1.5}}, "expected a whole number of 32 bits"),
        ({"featureGates": {"A": "x"}}, "expected a mapping of names to true or false"),
        ({"conntrack": {"tcpCloseWaitTimeout": "x"}}, "or null"),
    ],
)  # fmt: skip
def test_what_is_refused(content: dict[str, Any], message: str) -> None:
    assert any(message in one for one in said(**content)), said(**content)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"mode": ""},
        {"mode": None},
        {"mode": "nftables", "nftables": {"masqueradeBit": 5}},
        {"mode": "iptables", "nftables": {"masqueradeBit": 99}, "ipvs": {"scheduler": "bogus", "tcpTimeout": "-5s"}},
        {"bindAddress": "::", "healthzBindAddress": "[::]:10256", "metricsBindAddress": "127.0.0.1"},
        {"clusterCIDR": "10.0.0.0/8,fd00::/8", "nodePortAddresses": ["primary", "fd00::/8"]},
        {"clusterCIDR": "x", "detectLocalMode": "NodeCIDR"},
        {"detectLocalMode": "InterfaceNamePrefix", "detectLocal": {"interfaceNamePrefix": "veth"}},
        {
            "conntrack": {"tcpCloseWaitTimeout": None},
            "logging": {"format": "json"},
            "featureGates": {"KubeProxyIPVS": True},
        },
        {"clientConnection": {"qps": 1.5, "burst": 0}},
    ],
)
def test_what_is_taken(content: dict[str, Any]) -> None:
    assert said(**content) == []


def test_what_should_be_known_before() -> None:
    assert "gone from 1.43 on" in said(Severity.ADVICE, mode="ipvs")[0]
    assert "1.40 takes nftables" in said(Severity.ADVICE)[0]
    stays = said(Severity.ADVICE, mode="ipvs", ipvs={"tcpTimeout": "0s"})
    assert any("an earlier value stays" in one for one in stays)


@pytest.mark.parametrize("content", [[], {"apiVersion": "v1", "kind": "ConfigMap"}])
def test_other_documents_are_no_configuration(content: Any) -> None:
    (found,) = kubeproxy.check(documents.Document("f", content))
    assert "not a configuration" in str(found)


def test_a_key_that_stands_twice_is_said() -> None:
    text = yaml.safe_dump(HEADER) + "mode: ipvs\nmode: iptables\n"
    (document,) = documents.read(text, "f")
    assert "f:4: error: mode: kube-proxy logs it and goes on without it: stands here twice" in str(
        kubeproxy.check(document)[0]
    )


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("15m0s", 900 * 10**9),
        ("1.5h", 5400 * 10**9),
        (".5s", 5 * 10**8),
        ("5.s", 5 * 10**9),
        ("1h1m1s1ms1us1ns", 3661001001001),
        ("-5s", -5 * 10**9),
        ("+5s", 5 * 10**9),
        ("", None),
        ("5", None),
        ("1d", None),
        ("1h 5m", None),
        ("s", None),
        (".s", None),
        ("9999999h", None),
    ],
)
def test_durations_are_gos(text: str, nanoseconds: int | None) -> None:
    assert durations.parse(text) == nanoseconds


@pytest.mark.parametrize(("seconds", "text"), [(30, "30s"), (900, "15m0s"), (3661, "1h1m1s"), (0, "0s")])
def test_durations_are_written_as_go_prints_them(seconds: int, text: str) -> None:
    assert durations.from_seconds(seconds) == text
    assert durations.parse(text) == seconds * 10**9


def test_addresses_are_read_as_kube_proxy_reads_them() -> None:
    assert str(addresses.address("010.0.0.01")) == "10.0.0.1"
    assert str(addresses.address("::ffff:010.0.0.1")) == "::ffff:a00:1"
    assert addresses.address("fe80::1%eth0") is None
    assert [addresses.cidr_family(one) for one in ("10.1.2.3/8", "fd00::/8", "10.0.0.0/33", "10.0.0.0", "x/8")] == [
        4,
        6,
        None,
        None,
        None,
    ]
    assert addresses.host_and_port("[::1]:5") == ("::1", "5")
    assert addresses.host_and_port("a:b") == ("a", "b")
    assert addresses.host_and_port("::1") is None
