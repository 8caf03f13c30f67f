"""
The Cluster file of Google Distributed Cloud (GKE) on bare metal, where it asks for a cluster without kube-proxy.

Facts from "Create a cluster without kube-proxy" of Google's documentation; the feature is a preview.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ccm_lb.dataplane.files import findings
from ccm_lb.dataplane.files.documents import Document
from ccm_lb.dataplane.files.findings import Finding, Severity

GROUP = "baremetal.cluster.gke.io"
API_VERSION = f"{GROUP}/v1"
CLUSTER = "Cluster"
ANNOTATION = "preview.baremetal.cluster.gke.io/kube-proxy-free"
ENABLE = "enable"


def check(document: Document) -> list[Finding]:
    """What there is to say about a Cluster that is to run without kube-proxy."""
    return list(_check(document))


def _check(document: Document) -> Iterator[Finding]:
    if document.kind != (API_VERSION, CLUSTER):
        yield document.finding(Severity.ERROR, (), f"not a cluster; expected {API_VERSION}, {CLUSTER}")
        return
    metadata = document.content.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        yield document.finding(Severity.ERROR, ("metadata", "name"), "missing")
        return
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, dict):
        yield document.finding(Severity.ERROR, ("metadata", "annotations"), "not a mapping", value=annotations)
        return
    for name, value in annotations.items():
        yield from _annotation(document, str(name), value)
    for place, content in metadata.items():
        if place != "annotations" and isinstance(content, dict) and ANNOTATION in content:
            yield document.finding(
                Severity.ERROR,
                ("metadata", place, ANNOTATION),
                "belongs to metadata.annotations",
            )
    if ANNOTATION not in annotations:
        message = f'this cluster gets kube-proxy; without it: annotation {ANNOTATION}: "{ENABLE}"'
        yield document.finding(Severity.ADVICE, ("metadata", "annotations"), message)


def _annotation(document: Document, name: str, value: Any) -> Iterator[Finding]:
    path = ("metadata", "annotations", name)
    if name == ANNOTATION:
        if not isinstance(value, str):
            yield document.finding(
                Severity.ERROR,
                path,
                "annotations are strings",
                value=value,
                allowed=f'"{ENABLE}"',
                nearest=f'"{ENABLE}"',
            )
        elif value != ENABLE:
            near = f'"{ENABLE}"' if findings.nearest(value, [ENABLE]) else ""
            message = "not the value that removes kube-proxy"
            yield document.finding(Severity.ERROR, path, message, value=value, allowed=f'"{ENABLE}"', nearest=near)
        else:
            message = "needs Red Hat Enterprise Linux, or Ubuntu with kernel 5.7.0 or newer, on every node"
            yield document.finding(Severity.ADVICE, path, message)
    elif not isinstance(value, str):
        yield document.finding(Severity.ERROR, path, "annotations are strings", value=value)
    elif _means_the_annotation(name):
        yield document.finding(Severity.ERROR, path, "unknown annotation", nearest=ANNOTATION)


_PREFIX, _, _NAME = ANNOTATION.partition("/")


def _means_the_annotation(name: str) -> bool:
    """Whether somebody who wrote this wanted the annotation; the names of others, behind prefixes of their own, are left alone."""
    prefix, slash, last = name.rpartition("/")
    words = _letters(last)
    if slash and prefix == _PREFIX:
        return "kubeproxy" in words or bool(findings.nearest(words, [_letters(_NAME)]))
    if not slash or findings.nearest(prefix, [_PREFIX]):
        return "kubeproxyfree" in words or ("kubeproxy" in words and bool(findings.nearest(name, [ANNOTATION])))
    return False


def _letters(text: str) -> str:
    return "".join(one for one in text.lower() if one.isalpha())
