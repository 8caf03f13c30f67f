"""`ccm-lb orphans`: the load balancers of this cluster that no Service wants, from the outside, and their end."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import ipaddress
from collections.abc import AsyncIterator, Sequence
from importlib.metadata import version
from typing import Any, Literal

from ccm_lb.backends import registry
from ccm_lb.backends.base import BackendContext, LoadBalancerBackend, Reads
from ccm_lb.clock import SystemClock
from ccm_lb.controller import orphans
from ccm_lb.controller.orphans import Orphan
from ccm_lb.errors import ConfigError
from ccm_lb.http.transport import CloudTransport
from ccm_lb.kube.cluster import Cluster
from ccm_lb.kube.connect import connect
from ccm_lb.kube.leaderelection import NoElection
from ccm_lb.objects import Service
from ccm_lb.redaction import Secrets
from ccm_lb.settings.config import Config

_COLUMNS = ("AGE", "ADDRESS", "LOAD BALANCER", "WHY")


@dataclasses.dataclass(frozen=True)
class Finder:
    """A cluster, and its cloud."""

    backend: LoadBalancerBackend[Any]
    cluster: Cluster

    async def find(self) -> list[Orphan]:
        """The orphans as of now. Raises what cluster and cloud raise."""
        pages = [page async for page in self.backend.read_load_balancers()]
        return await orphans.find([one for page in pages for one in page], self.cluster)

    async def delete(self, confirmed: Sequence[Orphan]) -> list[Orphan]:
        """Delete those that were confirmed and are orphans still; which ones that were. Raises what cluster and cloud raise."""
        wanted = {one.load_balancer.id for one in confirmed}
        # Somebody thought about it for minutes, or hours.
        still = [one for one in await self.find() if one.load_balancer.id in wanted]
        for one in still:
            await self.backend.ensure_load_balancer_deleted(one.service())
        return still


@contextlib.asynccontextmanager
async def opened(config: Config, secrets: Secrets) -> AsyncIterator[Finder]:
    """Raises ConfigError for a wrong setting, and for a backend that cannot list; CCMError where cluster or cloud cannot be asked."""
    backend_class = registry.load(config.cloud_provider)
    if backend_class.reads is not Reads.ALL:
        raise ConfigError(
            f"the backend {config.cloud_provider} cannot list load balancers, so nobody can tell which are orphaned"
        )
    settings = registry.backend_config(backend_class, config.cloud_config, secrets)
    async with contextlib.AsyncExitStack() as stack:
        api = await connect(config.kubeconfig, config.master, user_agent=f"ccm-lb/{version('ccm-lb')}", secrets=secrets)
        stack.push_async_callback(api.close)
        cluster = Cluster(api)
        clock = SystemClock()
        # A person decides here: no Lease is held, and absent is success to whoever deletes the same.
        transport = CloudTransport(NoElection(), clock, secrets=secrets)
        await transport.open()
        stack.push_async_callback(transport.close)
        cluster_id = config.cluster_name or await cluster.cluster_id()
        backend = backend_class(BackendContext(cluster_id, settings, transport, clock, _Silent(), secrets))
        stack.push_async_callback(backend.close)
        await backend.open()
        yield Finder(backend, cluster)


def as_json(found: Sequence[Orphan]) -> list[dict[str, Any]]:
    """The keys are part of the command line's promise."""
    return [
        {
            "id": one.load_balancer.id,
            "addresses": list(one.load_balancer.addresses),
            "createdAt": one.load_balancer.created_at,
            "service": one.load_balancer.service or None,
            "serviceUID": one.load_balancer.owner_uid,
            "why": one.why,
        }
        for one in found
    ]


def lines(found: Sequence[Orphan], now: dt.datetime) -> list[str]:
    """A table for people, the oldest first."""
    if not found:
        return ["no orphans: every load balancer of this cluster has its Service"]
    ordered = sorted(found, key=lambda one: one.load_balancer.created_at or "")
    rows = [
        (
            age(one.load_balancer.created_at, now),
            ",".join(sorted(one.load_balancer.addresses, key=_by_family)) or "-",
            one.load_balancer.id,
            one.why,
        )
        for one in ordered
    ]
    widths = [max(len(row[column]) for row in (_COLUMNS, *rows)) for column in range(len(_COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (_COLUMNS, *rows)
    ]


def age(created_at: str | None, now: dt.datetime) -> str:
    """As kubectl has it: the largest unit, `-` where it is not known."""
    if created_at is None:
        return "-"
    seconds = max(0, int((now - dt.datetime.fromisoformat(created_at)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _by_family(address: str) -> tuple[int, str]:
    try:
        return ipaddress.ip_address(address).version, address
    except ValueError:
        return 9, address


class _Silent:
    def event(self, service: Service, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        """Nobody is there to read it."""
