"""Translations, and what each of them says it lost."""

from typing import Any

import pytest
import yaml

from ccm_lb.dataplane.files import check, convert
from ccm_lb.dataplane.files.aks import AksKubeProxyConfig, AksMode, AksScheduler, IpvsConfig

HEADER = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration"}


def test_the_whole_of_the_aks_form_has_a_place_upstream() -> None:
    given = IpvsConfig(
        scheduler=AksScheduler.ROUND_ROBIN,
        tcp_timeout_seconds=900,
        tcp_fin_timeout_seconds=120,
        udp_timeout_seconds=3600,
    )
    made = convert.to_kube_proxy(AksKubeProxyConfig(mode=AksMode.IPVS, ipvs_config=given))
    assert made.lost == ()
    assert made.text is not None
    assert yaml.safe_load(made.text) == {
        **HEADER,
        "mode": "ipvs",
        "ipvs": {"scheduler": "rr", "tcpTimeout": "15m0s", "tcpFinTimeout": "2m0s", "udpTimeout": "1h0m0s"},
    }


def test_the_default_is_iptables() -> None:
    made = convert.to_kube_proxy(AksKubeProxyConfig())
    assert made.text is not None
    assert yaml.safe_load(made.text) == {**HEADER, "mode": "iptables"}


def test_what_is_not_given_is_said() -> None:
    made = convert.to_kube_proxy(AksKubeProxyConfig(mode=AksMode.IPVS, ipvs_config=IpvsConfig(udp_timeout_seconds=5)))
    assert made.lost == ("tcpTimeout, tcpFinTimeout: not given; upstream leaves what the node has, AKS sets its own",)
    assert made.text is not None
    assert "scheduler" not in made.text


def test_a_kube_proxy_that_is_not_deployed_has_no_configuration() -> None:
    made = convert.to_kube_proxy(AksKubeProxyConfig(enabled=False, mode=AksMode.IPVS))
    assert made.text is None
    assert made.lost[0].startswith("enabled false: AKS deploys no kube-proxy")


@pytest.mark.parametrize(
    ("content", "aks", "lost"),
    [
        ({"mode": "ipvs", "ipvs": {"scheduler": "lc"}}, {"mode": "IPVS", "ipvsConfig": {"scheduler": "LeastConnection"}}, []),
        ({"mode": "nftables"}, {"mode": "NFTABLES"}, []),
        ({"mode": "iptables", "iptables": {}}, {"mode": "IPTABLES"}, []),
        ({}, {"mode": "IPTABLES"}, ["no mode: written as IPTABLES"]),
        ({"mode": "ipvs"}, {"mode": "IPVS"}, []),
        ({"mode": "ipvs", "ipvs": {"scheduler": ""}}, {"mode": "IPVS"}, []),
        ({"mode": "ipvs", "ipvs": {"scheduler": "wlc"}}, {"mode": "IPVS"}, ["ipvs.scheduler wlc: AKS has LeastConnection"]),
        ({"mode": "ipvs", "ipvs": {"strictARP": True, "syncPeriod": None}}, {"mode": "IPVS"}, ["ipvs.strictARP: AKS has no key"]),
        ({"mode": "ipvs", "ipvs": {"tcpTimeout": "0s"}}, {"mode": "IPVS"}, ["ipvs.tcpTimeout 0: leaving what the node has"]),
        ({"mode": "ipvs", "ipvs": {"tcpTimeout": None}}, {"mode": "IPVS"}, []),
        (
            {"mode": "ipvs", "ipvs": {"udpTimeout": "1500ms"}},
            {"mode": "IPVS", "ipvsConfig": {"udpTimeoutSeconds": 2}},
            ["ipvs.udpTimeout 1500ms: AKS takes whole seconds; written as 2"],
        ),
        ({"mode": "iptables", "ipvs": {"scheduler": "lc"}}, {"mode": "IPTABLES"}, ["ipvs: means nothing without mode ipvs"]),
        ({"mode": "iptables", "clusterCIDR": "10.0.0.0/8"}, {"mode": "IPTABLES"}, ["clusterCIDR: AKS has no key for it"]),
    ],
)  # fmt: skip
def test_upstreams_form_for_aks(content: dict[str, Any], aks: dict[str, Any], lost: list[str]) -> None:
    made = convert.to_aks({**HEADER, **content})
    assert made.text is not None
    assert yaml.safe_load(made.text) == {"enabled": True, **aks}
    assert len(made.lost) == len(lost)
    assert all(found.startswith(wanted) for found, wanted in zip(made.lost, lost, strict=True)), made.lost
    # What comes out is taken.
    (checked,) = check.check(made.text, "f")
    assert checked.aks is not None


def test_flags_in_all_their_spellings() -> None:
    command = [
        "kube-proxy",
        "--proxy-mode=ipvs",
        "--ipvs-scheduler",
        "lc",
        "--ipvs_strict_arp",
        "--v=2",
        "--ipvs-exclude-cidrs=a,b",
        "--feature-gates=LoadBalancerIPMode=true,AllBeta=false,",
    ]
    content, lost = convert.from_flags(command)
    assert content == {
        **HEADER,
        "mode": "ipvs",
        "ipvs": {"scheduler": "lc", "strictARP": True, "excludeCIDRs": ["a", "b"]},
        "featureGates": {"LoadBalancerIPMode": True, "AllBeta": False},
    }
    assert lost == ("--v: not translated",)


def test_a_configuration_is_upstreams_own_form_already() -> None:
    assert yaml.safe_load(convert.as_yaml(HEADER).text or "") == HEADER
