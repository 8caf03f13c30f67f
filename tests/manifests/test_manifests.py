"""What operators apply: kustomize's overlays and Helm's chart say the same, and the API server takes every field of them."""

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.manifests.rendering import (
    CHART,
    MANIFESTS,
    Json,
    RenderError,
    comparable,
    kustomized,
    monitor_definition,
    templated,
)

PRODUCTION: Json = {
    "config": {"cloud-provider": "fakecloud"},
    "metrics": {"service": True, "podMonitor": True},
    "networkPolicy": {"enabled": True},
}
BASE: Json = {
    "config": {"cloud-provider": "fakecloud"},
    "serviceProxy": {"enabled": False},
    "disruptionBudget": {"enabled": False},
    "topologySpread": {"enabled": False},
}


@pytest.mark.parametrize(
    ("folder", "values"),
    [
        pytest.param("base", BASE, id="base"),
        pytest.param("overlays/production", PRODUCTION, id="production"),
    ],
)
def test_the_chart_and_kustomize_make_the_same_objects(kubectl: Path, helm: Path, folder: str, values: Json) -> None:
    ours, theirs = comparable(kustomized(kubectl, MANIFESTS / folder)), comparable(templated(helm, values))
    assert set(theirs) == set(ours)
    for key, wanted in ours.items():
        assert _without_defaults(theirs[key]) == _without_defaults(wanted), key


def _without_defaults(obj: Json) -> Json:
    """What kustomize leaves to the API server and the chart says itself."""
    made = copy.deepcopy(obj)
    for container in made.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
        container.pop("imagePullPolicy", None)
    if made["kind"] == "Deployment":
        made["metadata"].pop("labels", None)
        made["spec"]["template"]["metadata"].pop("annotations", None)
    elif "labels" in made["metadata"] and set(made["metadata"]["labels"]) == {"app.kubernetes.io/name"}:
        made["metadata"].pop("labels")
    return made


@pytest.mark.parametrize(
    ("values", "says"),
    [
        pytest.param({}, "config.cloud-provider is not set", id="no provider"),
        pytest.param({"replica": 2}, "replica", id="an unknown value"),
        pytest.param({"replicas": "two", "config": {"cloud-provider": "x"}}, "replicas", id="of another type"),
        pytest.param({"config": {"cloud-provider": "x"}, "networkPolicy": {"on": True}}, "on", id="unknown inside"),
    ],
)
def test_a_wrong_value_is_refused_by_name(helm: Path, values: Json, says: str) -> None:
    with pytest.raises(RenderError, match=says):
        templated(helm, values)


def test_the_chart_passes_helms_own_review(helm: Path) -> None:
    command = [str(helm), "lint", "--strict", str(CHART), "--set=config.cloud-provider=fakecloud"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_installation_of_its_own_namespace_has_its_lease_and_rights_there(helm: Path) -> None:
    values = {**PRODUCTION, "leaseName": "other"}
    made = comparable(templated(helm, values, name="other", namespace="lb"))
    role = made[("Role", "lb", "other-leader-election")]
    assert role["rules"][1]["resourceNames"] == ["other"]
    [container] = made[("Deployment", "lb", "other")]["spec"]["template"]["spec"]["containers"]
    assert "--leader-elect-resource-name=other" in container["args"]
    assert "--leader-elect-resource-namespace=lb" in container["args"]


@pytest.fixture(scope="session")
def restricted(control_plane: ControlPlane, kubectl: Path) -> str:
    """A namespace whose pods have to be `restricted`; it knows PodMonitors."""
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    _kubectl(kubectl, control_plane, "apply", "-f", "-", objects=[namespace, monitor_definition()])
    _kubectl(kubectl, control_plane, "wait", "--for=condition=Established", "crd/podmonitors.monitoring.coreos.com")
    return "restricted"


def _kubectl(kubectl: Path, plane: ControlPlane, *arguments: str, objects: list[Json] | None = None) -> str:
    text = "\n---\n".join(json.dumps(one) for one in objects or ())
    command = [str(kubectl), f"--kubeconfig={plane.kubeconfig}", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
    return done.stdout + done.stderr


def _moved(objects: list[Json], namespace: str) -> list[Json]:
    """The same, in another namespace."""
    return [
        {**one, "metadata": {**one["metadata"], "namespace": namespace}} if "namespace" in one["metadata"] else one
        for one in objects
    ]


@pytest.mark.parametrize("source", ["base", "overlays/production", "overlays/fakecloud", "chart"])
def test_the_api_server_knows_every_field(
    control_plane: ControlPlane, kubectl: Path, helm: Path, restricted: str, source: str
) -> None:
    made = templated(helm, PRODUCTION) if source == "chart" else kustomized(kubectl, MANIFESTS / source)
    _kubectl(kubectl, control_plane, "apply", "--dry-run=server", "--validate=strict", "-f", "-", objects=made)


@pytest.mark.parametrize("source", ["overlays/production", "chart"])
async def test_its_pods_are_let_into_a_namespace_that_is_restricted(
    control_plane: ControlPlane, kubectl: Path, helm: Path, kube: Kube, restricted: str, source: str
) -> None:
    made = templated(helm, PRODUCTION) if source == "chart" else kustomized(kubectl, MANIFESTS / source)
    [deployment] = [one for one in made if one["kind"] == "Deployment"]
    # Pod Security warns of a Deployment, and refuses a pod: no controller makes one here, so this test does.
    assert "would violate" not in _kubectl(
        kubectl, control_plane, "apply", "--dry-run=server", "-f", "-", objects=_moved([deployment], restricted)
    )
    template = deployment["spec"]["template"]
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "ccm-lb", "namespace": restricted, "labels": template["metadata"]["labels"]},
        "spec": {**template["spec"], "serviceAccountName": "default", "priorityClassName": ""},
    }
    _kubectl(
        kubectl,
        control_plane,
        *("apply", "-f", "-"),
        objects=[
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": restricted}}
        ],
    )
    _kubectl(kubectl, control_plane, "apply", "--dry-run=server", "-f", "-", objects=[pod])
    pod["spec"]["containers"][0]["securityContext"] = {}
    with pytest.raises(AssertionError, match="violates PodSecurity"):
        _kubectl(kubectl, control_plane, "apply", "--dry-run=server", "-f", "-", objects=[pod])


def test_fakecloud_in_a_cluster_says_why_it_cannot_be_restricted(kubectl: Path) -> None:
    text = (MANIFESTS / "overlays" / "fakecloud" / "fakecloud.yaml").read_text()
    assert "hostNetwork: true" in text
    assert "no use in a cluster" in text


async def test_the_chart_is_installed_upgraded_and_uninstalled(
    control_plane: ControlPlane, helm: Path, kube: Kube, tmp_path: Path
) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(
        yaml.safe_dump(
            {"config": {"cloud-provider": "fakecloud"}, "cloudConfig": {"url": "http://cloud", "token": "x"}}
        )
    )

    def run(*arguments: str) -> str:
        command = [str(helm), *arguments, f"--kubeconfig={control_plane.kubeconfig}", "--namespace=kube-system"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "rollout status deployment/lb" in run("install", "lb", str(CHART), f"--values={values}")
    before = await kube.get("apps/v1/deployments", "lb", "kube-system")
    assert before["spec"]["replicas"] == 2
    run("upgrade", "lb", str(CHART), f"--values={values}", "--set=cloudConfig.token=y")
    after = await kube.get("apps/v1/deployments", "lb", "kube-system")
    annotations = [one["spec"]["template"]["metadata"]["annotations"] for one in (before, after)]
    assert annotations[0] != annotations[1], "changed settings have to replace the pods"
    run("uninstall", "lb")
    assert [one["metadata"]["name"] for one in await kube.list("apps/v1/deployments", "kube-system")] == []
