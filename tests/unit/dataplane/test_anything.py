"""Whatever stands in a file or a ConfigMap: an answer or one line of complaint, never a crash."""

import json
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_lb.dataplane.cluster import infer
from ccm_lb.dataplane.files import check, convert, findings
from ccm_lb.dataplane.files.schema import API_VERSION, KIND, KUBE_PROXY_CONFIGURATION
from ccm_lb.errors import ConfigError
from tests.data import objects, observed

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**40), 2**40), st.floats(allow_nan=False), st.text(max_size=8),
    st.sampled_from(["ipvs", "1s", "-1s", "10.0.0.0/8", "IPVS", "LeastConnection", "::", "1.2.3.4:5"]),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ipvs_keys = st.sampled_from([*KUBE_PROXY_CONFIGURATION["ipvs"], "x"])
keys = st.sampled_from([*KUBE_PROXY_CONFIGURATION, "x"])
contents = st.dictionaries(keys, values | st.dictionaries(ipvs_keys, values, max_size=4), max_size=6)
aks_keys = st.sampled_from(["enabled", "Mode", "mode", "ipvsConfig", "IPVSconfig", "x"])
aks_inner = st.sampled_from(["scheduler", "TCPTimeoutSeconds", "tcpTimeoutSeconds", "udpTimeoutSeconds", "x"])


@given(st.text() | st.text(alphabet='{}[]:,&*-"\n\t ab1!|>'))
@settings(max_examples=50, deadline=None)
def test_any_text_is_checked_or_complained_of(text: str) -> None:
    said: list[str] = []
    try:
        said += [str(one) for document in check.check(text, "f") for one in document.findings]
    except ConfigError as error:
        said.append(str(error))
    assert all(one.startswith("f") for one in said)


@given(contents)
@settings(max_examples=50, deadline=None)
def test_any_configuration_is_checked_and_what_is_taken_is_translated(content: dict[str, Any]) -> None:
    (checked,) = check.check(yaml.safe_dump({**content, "apiVersion": API_VERSION, "kind": KIND}), "f")
    if checked.kube_proxy is not None:
        (translated,) = check.check(convert.to_aks(checked.kube_proxy).text or "", "aks")
        assert translated.aks is not None


@given(st.dictionaries(aks_keys, values | st.dictionaries(aks_inner, values, max_size=3), max_size=4))
@settings(max_examples=50, deadline=None)
def test_any_object_is_checked_as_the_aks_form_and_what_is_taken_is_translated(content: dict[str, Any]) -> None:
    (checked,) = check.check(json.dumps(content), "f")
    assert (checked.aks is None) == findings.refused(checked.findings)
    if checked.aks is not None:
        assert check.check(checked.aks.to_json(), "again")[0].aks == checked.aks
        text = convert.to_kube_proxy(checked.aks).text
        assert (text is not None) is checked.aks.enabled
        if text is not None:
            (upstream,) = check.check(text, "upstream")
            assert upstream.kube_proxy is not None


kinds = st.sampled_from(
    [("v1", "ConfigMap"), ("v1", "List"), ("apps/v1", "DaemonSet"), ("baremetal.cluster.gke.io/v1", "Cluster")]
)
shapes = st.sampled_from(
    ["metadata", "annotations", "spec", "template", "containers", "command", "env", "data", "items"]
)
nested = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(shapes, inner, max_size=3), max_leaves=12
)


@given(kinds, st.dictionaries(shapes, nested, max_size=4))
@settings(max_examples=100, deadline=None)
def test_any_object_of_a_known_kind_is_checked_or_complained_of(kind: tuple[str, str], content: dict[str, Any]) -> None:
    text = yaml.safe_dump({**content, "apiVersion": kind[0], "kind": kind[1]})
    try:
        said = [str(one) for document in check.check(text, "f") for one in document.findings]
    except ConfigError as error:
        said = [str(error)]
    assert all(one.startswith("f") for one in said)


@given(contents | values)
@settings(max_examples=50, deadline=None)
def test_any_configuration_in_a_cluster_gives_an_answer(content: Any) -> None:
    items = objects("kubeadm", MODE="ipvs")
    items[0]["data"]["config.conf"] = yaml.safe_dump(content)
    assert infer.service_proxy(observed(items)).sentence()
