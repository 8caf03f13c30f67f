"""docs/service-proxies.md: every row of its tables is run, and says what is so."""

import asyncio
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ccm_lb.dataplane.clients import supportmatrix
from tests import data
from tests.controlplane.kube import Kube
from tests.controlplane.server import ControlPlane
from tests.data.applied import made
from tests.docs import pages

PAGE = pages.read("docs/service-proxies.md")


class Row(NamedTuple):
    fact: str
    command: str
    prints: str
    exit: int
    cluster: str


def rows() -> list[Row]:
    found = []
    lines = [line for line in PAGE.prose.splitlines() if line.startswith("| ") and line.count("|") == 6]
    for line in lines:
        fact, command, prints, code, cluster = (cell.strip() for cell in line.strip("|").split("|"))
        if command.startswith("`"):
            found.append(Row(fact, command.strip("`"), prints.strip("`"), int(code), cluster))
    return found


def node(name: str, system: str, kernel: str) -> data.Json:
    info = {"osImage": system, "kernelVersion": kernel, "kubeletVersion": "v1.30.6-gke.300"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"nodeInfo": info}}


def objects(cluster: str) -> list[data.Json]:
    match cluster:
        case "":
            return []
        case "rhel":
            return [node("rhel", "Red Hat Enterprise Linux 8.6 (Ootpa)", "4.18.0-372.el8.x86_64")]
        case "focal":
            return [node("focal", "Ubuntu 20.04.6 LTS", "5.4.0-150-generic")]
        case "gate" | "no-gate":
            return gated(on=cluster == "gate")
        case "kubeadm":
            return data.objects("kubeadm", MODE="iptables")
    return data.objects(cluster)


def gated(*, on: bool) -> list[data.Json]:
    """kube-proxy 1.29 with its feature gate on or off, and Services that publish an address."""
    config_map, daemonset, *rest = data.objects("kubeadm", MODE="iptables")
    (container,) = daemonset["spec"]["template"]["spec"]["containers"]
    container["image"] = "registry.k8s.io/kube-proxy:v1.29.4"
    config = f"clusterCIDR: 10.244.0.0/16\nfeatureGates: {{LoadBalancerIPMode: {str(on).lower()}}}\n"
    modes = {"vip": {"ipMode": "VIP"}, "proxy": {"ipMode": "Proxy"}, "unsaid": {}}
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.80", **mode}]}},
        }
        for name, mode in modes.items()
    ]
    return [{**config_map, "data": {"config.conf": config}}, daemonset, *rest, *services]


def test_the_page_has_its_rows() -> None:
    assert len(rows()) == 47
    assert {row.cluster for row in rows()} >= {"", "kubeadm", "aks", "gke-baremetal", "gke-classic", "k3s", "microk8s"}


class Answer(NamedTuple):
    text: str
    exit: int


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str], Answer]:
    """By command and cluster: several rows look at one answer."""
    return {}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.fact[:60])
async def test_what_the_documentation_says_is_shown(
    row: Row,
    answers: dict[tuple[str, str], Answer],
    control_plane: ControlPlane,
    kube: Kube,
    namespace: str,
    tmp_path: Path,
) -> None:
    key = (row.command, row.cluster)
    if key not in answers:
        async with made(kube, objects(row.cluster)):
            answers[key] = await typed(row.command, control_plane.kubeconfig, tmp_path)
    assert row.prints in answers[key].text
    assert answers[key].exit == row.exit, answers[key].text


async def typed(command: str, kubeconfig: Path, folder: Path) -> Answer:
    _, example, cluster = PAGE.blocks_of("yaml")
    (folder / "kube-proxy.json").write_text(example.text)
    (folder / "cluster.yaml").write_text(cluster.text)
    path = f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", command),
        cwd=folder,
        env={"PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(50):
        printed, _ = await process.communicate()
    return Answer(printed.decode(), process.returncode or 0)


@pytest.mark.parametrize("named", [row[-1].strip("`") for row in pages.table(PAGE.prose, "Seen on nodes")])
def test_a_test_that_the_page_names_exists(named: str) -> None:
    file, _, name = named.partition("::")
    assert f"async def {name}(" in (pages.ROOT / file).read_text()


def test_the_known_differences_on_the_page_are_the_codes() -> None:
    written = [tuple(row) for row in pages.table(PAGE.prose, "Known differences")]
    known = [
        (str(one.kind), str(one.since or ""), str(one.until or ""), str(one.honours), one.source)
        for one in supportmatrix.DIFFERENCES
    ]
    assert written == known
