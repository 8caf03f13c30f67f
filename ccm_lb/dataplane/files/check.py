"""Which of the known kinds a file's documents are, and what there is to say about each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ccm_lb.dataplane import workloads
from ccm_lb.dataplane.files import aks, baremetal, convert, documents, kubeproxy, schema
from ccm_lb.dataplane.files.aks import AksKubeProxyConfig
from ccm_lb.dataplane.files.documents import Document
from ccm_lb.dataplane.files.findings import Finding, Severity
from ccm_lb.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Checked:
    """
    One document, what it is and what there is to say about it.

    `aks` or `kube_proxy` is the configuration in it, where it is one that would be taken; `left` says what of a command line is not in it.
    """

    what: str
    document: Document
    findings: tuple[Finding, ...]
    aks: AksKubeProxyConfig | None = None
    kube_proxy: Mapping[str, Any] | None = None
    left: tuple[str, ...] = ()


KNOWN = "the AKS kube-proxy configuration (JSON), KubeProxyConfiguration, kubeadm's ConfigMap, a DaemonSet or a Cluster"


def check(text: str, file: str) -> list[Checked]:
    """
    Every document of a file that is of a known kind; others may stand beside it, as in kubeadm's files.

    Raises ConfigError where the file cannot be read, or none is of a known kind.
    """
    found = [_check(each) for one in documents.read(text, file) for each in _items(one)]
    known = [one for one in found if one is not None]
    if not known:
        raise ConfigError(f"{file}: nothing in it that is known here; expected {KNOWN}")
    return known


def _items(document: Document) -> list[Document]:
    """The objects of a List, as kubectl prints several; else the document itself."""
    items = document.content.get("items") if isinstance(document.content, dict) else None
    if document.kind != ("v1", "List") or not isinstance(items, list):
        return [document]
    each = ((index, one) for index, one in enumerate(items) if isinstance(one, dict) and "kind" in one)
    return [documents.within(document, ("items", index), one) for index, one in each]


def _check(document: Document) -> Checked | None:
    match document.kind:
        case ("", ""):
            return _bare(document)
        case (schema.API_VERSION, _) | (_, schema.KIND):
            return _kube_proxy(document)
        case (version, _) if version.partition("/")[0] == baremetal.GROUP:
            return Checked("Cluster", document, (*baremetal.check(document), *_twice(document)))
        case ("v1", "ConfigMap"):
            return _config_map(document)
        case ("apps/v1", "DaemonSet"):
            return _daemonset(document)
    return None


def _bare(document: Document) -> Checked:
    """No kind: the AKS form has none, and everything else must have one."""
    if document.is_json:
        config, said = aks.parse(document)
        return Checked("AKS kube-proxy configuration", document, tuple(said), aks=config)
    message = f"no apiVersion and kind: kube-proxy wants {schema.API_VERSION}, {schema.KIND}; the AKS form is JSON"
    return Checked("unknown", document, (document.finding(Severity.ERROR, (), message),))


def _kube_proxy(document: Document) -> Checked:
    said = tuple(kubeproxy.check(document))
    fine = all(one.severity is not Severity.ERROR for one in said)
    return Checked(schema.KIND, document, said, kube_proxy=document.content if fine else None)


def _config_map(document: Document) -> Checked | None:
    """The first value that is a KubeProxyConfiguration; findings name the key, and lines count within it."""
    data = document.content.get("data")
    for key, text in (data if isinstance(data, dict) else {}).items():
        if not isinstance(text, str) or schema.KIND not in text:
            continue
        inner = documents.read(text, f"{document.file} data.{key}")
        for one in inner:
            if one.kind[1] == schema.KIND:
                return _beside(_kube_proxy(one), document)
    return None


def _daemonset(document: Document) -> Checked | None:
    misshapen = workloads.misshapen(document.content)
    if misshapen:
        said = document.finding(Severity.ERROR, tuple(misshapen.split(".")), "not what a DaemonSet has there")
        return Checked("DaemonSet", document, (said,))
    found = workloads.kube_proxy(document.content)
    if found is None:
        return None
    given = convert.flags(found.command)
    if "config" in given:
        message = (
            f"its configuration is in the file {given['config']}; give that one, or the ConfigMap that it comes from"
        )
        said = document.finding(Severity.WARNING, (), message)
        return Checked("DaemonSet", document, (said, *_twice(document)))
    content, left = convert.from_flags(found.command)
    checked = _kube_proxy(Document(f"{document.file} flags", content))
    return dataclasses.replace(_beside(checked, document), left=left)


def _beside(checked: Checked, outer: Document) -> Checked:
    """A configuration with what there is to say of the object that holds it."""
    return dataclasses.replace(checked, findings=(*checked.findings, *_twice(outer)))


def _twice(document: Document) -> tuple[Finding, ...]:
    return tuple(
        document.finding(Severity.ERROR, path, "stands here twice, and only the last one would count")
        for path in document.twice
    )
