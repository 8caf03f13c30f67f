"""Manifests as kustomize and Helm render them, made comparable."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.docs.pages import ROOT

Json = dict[str, Any]

MANIFESTS: Final = ROOT / "manifests"
CHART: Final = MANIFESTS / "chart"
# What only Helm adds, to find its objects again.
_HELM_LABELS: Final = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}


class RenderError(Exception):
    """The tool refused; the text is its own word."""


def monitor_definition() -> Json:
    """The Prometheus operator's kind, as far as an API server has to know it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "podmonitors.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def kustomized(kubectl: Path, folder: Path) -> list[Json]:
    return _objects(_output([str(kubectl), "kustomize", str(folder)]))


def templated(
    helm: Path, values: Mapping[str, Any], *options: str, name: str = "ccm-lb", namespace: str = "kube-system"
) -> list[Json]:
    """What `helm template` makes of these values."""
    command = [str(helm), "template", name, str(CHART), f"--namespace={namespace}", "--values=-", *options]
    return _objects(_output(command, json.dumps(values)))


def comparable(objects: Iterable[Json]) -> dict[tuple[str, str, str], Json]:
    """By kind, namespace and name, without what each tool adds for itself; Secrets are left out, since each tool names them its own way."""
    found = {}
    for one in objects:
        if one["kind"] == "Secret":
            continue
        metadata = one["metadata"]
        found[(one["kind"], metadata.get("namespace", ""), metadata["name"])] = _stripped(one)
    return found


def _stripped(value: Any) -> Any:
    if isinstance(value, list):
        return [_stripped(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {
        name: _stripped(one) for name, one in value.items() if name not in _HELM_LABELS and name != "checksum/config"
    }
    if "annotations" in made and not made["annotations"]:
        del made["annotations"]
    return made


def _objects(text: str) -> list[Json]:
    return [one for one in yaml.safe_load_all(text) if one]


def _output(command: list[str], text: str | None = None) -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 0:
        raise RenderError(done.stderr.strip())
    return done.stdout
