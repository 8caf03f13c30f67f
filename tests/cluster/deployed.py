"""The controller as it is deployed in the cluster: its pods, its Lease, and what its port says."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.cluster.cluster import Cluster
from tests.harness.cloud import Fakecloud
from tests.manifests.rendering import monitor_definition
from tests.packets.clients import http_body

Json = dict[str, Any]

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
NAMESPACE: Final = "kube-system"
_PORT: Final = 10258
_LABEL: Final = "app.kubernetes.io/name=ccm-lb"


_OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: kube-system
resources: [../production]
secretGenerator:
  - name: ccm-lb
    files: [ccm-lb.yaml, cloud.yaml]
"""


class Deployed:
    """Of the Deployment `name`."""

    def __init__(self, cluster: Cluster, name: str = "ccm-lb") -> None:
        self._cluster = cluster
        self.name = name

    def kubectl(self, *arguments: str) -> str:
        return self._cluster.kubectl(f"--namespace={NAMESPACE}", *arguments)

    def wait_rolled_out(self) -> None:
        """Until every replica is of the newest kind and ready."""
        self.kubectl("rollout", "status", f"deployment/{self.name}", "--timeout=120s")

    def pods(self, label: str = _LABEL) -> list[Json]:
        """Those that are not on their way out, by their names."""
        found = json.loads(self.kubectl("get", "pods", f"--selector={label}", "-o", "json"))["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def leader(self) -> Json:
        """The pod that holds the Lease."""
        lease = json.loads(self.kubectl("get", "lease", "cloud-controller-manager", "-o", "json"))
        holder = lease["spec"]["holderIdentity"]
        [found] = [one for one in self.pods() if holder.startswith(one["metadata"]["name"])]
        return found

    def kill(self, pod: Json) -> None:
        """SIGKILL its process, which the kubelet does not know of before it is gone."""
        [status] = pod["status"]["containerStatuses"]
        identity = status["containerID"].removeprefix("containerd://")
        self._cluster.nodes[pod["spec"]["nodeName"]].kill_container(identity)

    async def metric(self, name: str) -> str:
        """The leader's line of that metric."""
        text = await http_body(self._cluster.control, self.leader()["status"]["podIP"], _PORT, "/metrics")
        [line] = [one for one in text.splitlines() if one.startswith(name)]
        return line


@contextlib.contextmanager
def production(cluster: Cluster, cloud: Fakecloud, checkout: Path) -> Iterator[Deployed]:
    """An overlay of an operator's own on top of the one for production, applied, and taken away again."""
    manifests = checkout / "manifests"
    shutil.copytree(MANIFESTS, manifests)
    mine = manifests / "overlays" / "mine"
    mine.mkdir()
    (mine / "kustomization.yaml").write_text(_OVERLAY)
    (mine / "ccm-lb.yaml").write_text("cloud-provider: fakecloud\ncloud-config: /etc/ccm-lb/cloud.yaml\n")
    (mine / "cloud.yaml").write_text(json.dumps({"url": cloud.url, "token": cloud.token}))
    cluster.kubectl("apply", "-f", "-", text=json.dumps(monitor_definition()))
    cluster.kubectl("wait", "--for=condition=Established", "crd/podmonitors.monitoring.coreos.com")
    cluster.kubectl("apply", "-k", str(mine))
    deployed = Deployed(cluster)
    deployed.wait_rolled_out()
    yield deployed
    cluster.kubectl("delete", "-k", str(mine), "--timeout=60s")
