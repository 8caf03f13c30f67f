"""A backend for commands that only look: opened without the Lease, by a transport that lets nothing through that writes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal, NamedTuple

from ccm_lb.backends import actual, registry
from ccm_lb.backends.actual import ActualLoadBalancer, Difference
from ccm_lb.backends.base import BackendContext, LoadBalancerBackend, Reads, Transport
from ccm_lb.clock import SystemClock
from ccm_lb.controller.capable import Capable
from ccm_lb.errors import ConfigError
from ccm_lb.http.transport import CloudTransport
from ccm_lb.kube.cluster import Cluster
from ccm_lb.objects import Node, Service
from ccm_lb.redaction import Secrets
from ccm_lb.settings.config import Config

_PATIENCE = 5.0  # seconds for an answer of the cloud


class Opened(NamedTuple):
    """The backend, and why opening it failed, empty if it did not: its settings are there all the same."""

    backend: Capable
    silent: str


async def cluster_id(config: Config, cluster: Cluster) -> str:
    """What marks this cluster's load balancers. Raises ConfigError where it may not be read."""
    return config.cluster_name or await cluster.cluster_id()


@contextlib.asynccontextmanager
async def opened(
    config: Config, cluster_id: str, secrets: Secrets, guard: Callable[[Transport], Transport] = lambda inner: inner
) -> AsyncIterator[Opened]:
    """Raises ConfigError for a wrong setting. `guard` may stand before the transport and see what is to be sent."""
    backend_class = registry.load(config.cloud_provider)
    settings = registry.backend_config(backend_class, config.cloud_config, secrets)
    clock = SystemClock()
    transport = CloudTransport(_NoLease(), clock, secrets=secrets, timeout=_PATIENCE)
    backend = Capable(backend_class(BackendContext(cluster_id, settings, guard(transport), clock, _Silent(), secrets)))
    async with contextlib.AsyncExitStack() as stack:
        await transport.open()
        stack.push_async_callback(transport.close)
        stack.push_async_callback(backend.close)
        yield Opened(backend, await _open(backend))


async def _open(backend: LoadBalancerBackend[Any]) -> str:
    try:
        await backend.open()
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a backend raises, its settings are there
        return words(error)
    return ""


@dataclasses.dataclass(frozen=True)
class Beside:
    """What the cloud has beside what is wanted; `silent` is why that is not known."""

    found: ActualLoadBalancer | None = None
    differences: tuple[Difference, ...] = ()
    silent: str = ""

    def as_json(self) -> dict[str, Any]:
        """The keys are part of the command line's promise."""
        return {
            "notCompared": self.silent or None,
            "id": self.found and self.found.id,
            "addresses": list(self.found.addresses) if self.found else [],
            "settled": self.found and self.found.settled,
            "differences": [
                {"setting": one.setting, "desired": _plain(one.desired), "actual": _plain(one.actual)}
                for one in self.differences
            ],
        }


async def beside(backend: LoadBalancerBackend[Any], service: Service, nodes: Sequence[Node]) -> Beside:
    """Asked of the backend; whatever it raises is the reason why it is not known."""
    if backend.reads is Reads.NOTHING:
        return Beside(silent="the backend does not tell what the cloud has")
    try:
        pages = [page async for page in backend.read_load_balancers(service.uid)]
        found = next((one for page in pages for one in page), None)
        return Beside(found, actual.differences(await backend.desired_settings(service, nodes), found))
    except Exception as error:  # noqa: BLE001 - whatever a backend raises
        return Beside(silent=words(error))


def words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, tuple) else value


class _NoLease:
    """A Lease that is never held: the transport lets reads pass, and nothing else."""

    fencing_token = None

    def holds(self) -> bool:
        return False


class _Silent:
    def event(self, service: Service, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        """Who looks writes nothing."""
