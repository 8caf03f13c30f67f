"""The controller's requests to the Kubernetes API, by name: paths, parameters and what an answer is narrowed to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Any, Protocol

import yarl

from ccm_lb.errors import ApiError, ConfigError, ForbiddenError
from ccm_lb.kube import patches
from ccm_lb.objects import Key

SERVICES = "/api/v1/services"
NODES = "/api/v1/nodes"
LOAD_BALANCERS_ONLY = "spec.type=LoadBalancer"  # a field selector; servers that do not have it answer 400
_STREAMING_LISTS_SINCE = (1, 34)
_FROM_CACHE = {"resourceVersion": "0"}  # any state that the API server has at hand; a GET decides where it matters


async def server_addresses(server: str) -> tuple[str, ...]:
    """The IP addresses that a server's URL stands for; none where its name cannot be resolved."""
    url = yarl.URL(server)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.host or "", url.port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(sorted({str(address[0]) for *_, address in found}))


class Requests(Protocol):
    """What `kube.KubeApi` offers; plain JSON, errors as in `ccm_lb.errors`."""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]: ...
    async def patch(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]: ...
    async def list_metadata(self, path: str, params: Mapping[str, str] | None = None) -> list[dict[str, Any]]: ...


class Cluster:
    """One cluster's API, for the reconciler (`writes.Services`) and the resync (`resync.Objects`)."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def get_service(self, key: Key) -> Mapping[str, Any]:
        return await self._requests.get(_service(key))

    async def patch_service_status(self, key: Key, patch: patches.Patch, *, dry_run: bool = False) -> Mapping[str, Any]:
        return await self._requests.patch(f"{_service(key)}/status", patch, dry_run=dry_run)

    async def get_node(self, name: str) -> Mapping[str, Any]:
        return await self._requests.get(f"{NODES}/{name}")

    async def list_service_metadata(self, *, newest: bool = False) -> list[Mapping[str, Any]]:
        """`newest`: as etcd has it now, and not as some moments ago."""
        return [
            item["metadata"] for item in await self._requests.list_metadata(SERVICES, {} if newest else _FROM_CACHE)
        ]

    async def list_node_metadata(self) -> list[Mapping[str, Any]]:
        return [item["metadata"] for item in await self._requests.list_metadata(NODES, _FROM_CACHE)]

    async def cluster_id(self) -> str:
        """
        The UID of the namespace kube-system: unique to a cluster, and as old as it.

        Raises ConfigError when RBAC does not grant it.
        """
        try:
            namespace = await self._requests.get("/api/v1/namespaces/kube-system")
        except ForbiddenError as error:
            raise ConfigError(
                "the UID of the namespace kube-system, which marks this cluster's load balancers, cannot be read "
                f"({error}): grant get on it, or give a name that is unique among your clusters with --cluster-name"
            ) from error
        uid: str = namespace["metadata"]["uid"]
        return uid

    async def service_selector(self) -> str:
        """The field selector that keeps other Services off the watch, empty where the server does not have it."""
        try:
            await self._requests.get(SERVICES, {"fieldSelector": LOAD_BALANCERS_ONLY, "limit": "1"})
        except ApiError as error:
            if error.status == 400:
                return ""
            raise
        return LOAD_BALANCERS_ONLY

    async def streams_lists(self) -> bool:
        """Whether the server can begin a watch with what exists (KEP-3157)."""
        version = await self._requests.get("/version")
        digits = ["".join(filter(str.isdigit, str(version.get(part, "")))) or "0" for part in ("major", "minor")]
        return (int(digits[0]), int(digits[1])) >= _STREAMING_LISTS_SINCE


def _service(key: Key) -> str:
    return f"/api/v1/namespaces/{key.namespace}/services/{key.name}"
