"""The way of ccm-lb to the scripted cloud; the Go peer has its own in tests/controlplane/peer/remote.go."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ccm_lb.backends.abilities import FAMILIES, PROTOCOLS, Abilities
from ccm_lb.backends.base import BackendConfig, LoadBalancerBackend
from ccm_lb.errors import CCMError, ImplementedElsewhereError, RetryAfterError
from ccm_lb.objects import LoadBalancerStatus, Node, Service

_DIST_INFO = "parity_cloud-0.dist-info"


def entry_point() -> Path:
    """A folder that makes `--cloud-provider=parity` known to a process that has it in its PYTHONPATH."""
    folder = Path(tempfile.mkdtemp(prefix="parity-"))
    (folder / _DIST_INFO).mkdir()
    (folder / _DIST_INFO / "METADATA").write_text("Metadata-Version: 2.1\nName: parity-cloud\nVersion: 0\n")
    (folder / _DIST_INFO / "entry_points.txt").write_text(
        "[ccm_lb.backends]\nparity = tests.parity.backend:ParityBackend\n"
    )
    return folder


class ParityBackend(LoadBalancerBackend[BackendConfig]):
    # The peer knows no abilities: its cloud is asked for everything.
    abilities = Abilities(protocols=PROTOCOLS, mixed_protocols=True, families=FAMILIES, dual_stack=True)

    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        said = await self._call("get", service)
        return LoadBalancerStatus.model_validate(said["status"]) if said["exists"] else None

    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        return LoadBalancerStatus.model_validate((await self._call("ensure", service, nodes))["status"])

    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        await self._call("update", service, nodes)

    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        await self._call("delete", service)

    async def _call(self, verb: str, service: Service, nodes: Sequence[Node] = ()) -> Any:
        body = {"verb": verb, "service": service.raw, "nodes": [node.raw for node in nodes]}
        url = os.environ["PEER_CLOUD"] + "/call"
        said = (await self.context.transport.request("POST", url, body=body, idempotent=False)).json()
        if said["outcome"] == "error":
            raise CCMError(said["message"])
        if said["outcome"] == "retry":
            raise RetryAfterError(said["message"], said["seconds"])
        if said["outcome"] == "elsewhere":
            raise ImplementedElsewhereError
        return said
