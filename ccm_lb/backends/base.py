"""
What a provider implements, and what it is handed.

A provider subclasses `LoadBalancerBackend`, declares its settings as a pydantic model, and names the class in the entry point
group `ccm_lb.backends`:

    [project.entry-points."ccm_lb.backends"]
    acme = "acme_lb:AcmeBackend"

`ccm-lb run --cloud-provider acme --cloud-config acme.yaml` then reads acme.yaml into that model, opens the backend, and calls it.
The rest is the core's: watching, finalizers, status, events, retries, leader election, one call at a time for each Service.

The contract is upstream's `cloudprovider.LoadBalancer` (k8s.io/cloud-provider/cloud.go), in snake_case and async:

- Every method may be called again at any time: after a crash, a lost reply, a change of the leader, or for no visible reason. Work is
  found again by its owner, `context.cluster_id` and `service.uid`, which must be stored on the load balancer by the very request
  that creates it. Names, status and annotations are no identity: users edit them, and two clusters choose the same ones.
- Calls for one Service never overlap. Calls for different Services do.
- A request that changes nothing is not sent: compare with what the cloud holds, write the difference.
- Service and nodes are read-only.
- A failure leaves what served before serving; what this very attempt created may be rolled back, nothing else.
- Any exception is a failure: shown to the user in an event, retried after 5 s doubling to 300 s. `RetryAfterError`, `TerminalError` and
  `ImplementedElsewhereError` from `ccm_lb.errors` say more and are honoured from every method.
"""

from __future__ import annotations

import abc
import dataclasses
import enum
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from ccm_lb import annotations as ccm_annotations
from ccm_lb.annotations import Options
from ccm_lb.backends.abilities import Abilities, Honoured
from ccm_lb.backends.actual import ActualLoadBalancer, Settings
from ccm_lb.ipmode import Traffic
from ccm_lb.objects import LoadBalancerStatus, Node, Service
from ccm_lb.redaction import Secrets

__all__ = [
    "Abilities",
    "BackendConfig",
    "BackendContext",
    "Clock",
    "EventRecorder",
    "Honoured",
    "LoadBalancerBackend",
    "Reads",
    "Response",
    "Transport",
    "default_load_balancer_name",
]


@dataclasses.dataclass(frozen=True)
class Response:
    """What the cloud answered: any status, also 4xx and 5xx; which of them are errors is the backend's to say."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON, None when empty. Raises ValueError when it is neither."""
        return json.loads(self.body) if self.body else None


class Transport(Protocol):
    """
    The way to the cloud, shared by all calls of a backend.

    It bounds how many requests are under way, waits as the cloud asks (429, Retry-After) for all of them alike, refuses to send
    once the Lease is not surely held, and retries what may be retried: a few attempts, seconds in all.
    """

    async def request(
        self,
        method: str,
        url: str,
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        idempotent: bool | None = None,
        writes: bool | None = None,
    ) -> Response:
        """
        Send one HTTP request; `body` goes out as JSON unless it is None.

        `idempotent` says whether it may be repeated after a lost reply; None means: by its method (all but POST and PATCH). `writes` says
        whether it may change something that the Lease guards; None means: by its method (all but GET, HEAD and OPTIONS). A login does not.

        Raises:
            RetryAfterError: the cloud asks for a longer pause than one call should take.
            CloudUnreachableError: no answer; the request may have been applied.
            NotLeaderError: not sent, since another replica may be working by now.
        """
        ...

    def permit(self) -> AbstractAsyncContextManager[None]:
        """
        For a backend that talks through a vendor's SDK: hold this around each SDK call, and limit and fence apply to it too. A call that
        changed something is followed by `ccm_lb.backends.changes.note()`, as `request` does by itself.

        Raises NotLeaderError on entry.
        """
        ...

    @property
    def fencing_token(self) -> str | None:
        """
        `<Lease UID>:<leaseTransitions>` of the Lease held, None without leader election.

        A cloud that can store it refuses a write that carries a lower number than one it has seen, which closes the gap between the
        check before a request and its arrival.
        """
        ...


class Clock(Protocol):
    """Time as the controller sees it; tests hand in their own."""

    def monotonic(self) -> float:
        """Seconds that never jump and go on while the process is stopped."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class EventRecorder(Protocol):
    """Posts Kubernetes events on a Service; repeats are counted up, not written again."""

    def event(self, service: Service, type: Literal["Normal", "Warning"], reason: str, message: str) -> None:  # noqa: A002
        """Post in the background; never raises, never blocks. `reason` is CamelCase, `message` a sentence for the user."""
        ...


class BackendConfig(BaseModel):
    """The base of a provider's settings: frozen, unknown keys refused; `token_file` is `tokenFile` in the file of --cloud-config."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


ConfigT = TypeVar("ConfigT", bound=BackendConfig)


@dataclasses.dataclass(frozen=True)
class BackendContext(Generic[ConfigT]):
    """Everything a backend is handed. It makes none of this itself, so limits, fencing and tests work for all of them."""

    cluster_id: str  # identifies this cluster for ever: --cluster-name, or the UID of the namespace kube-system
    config: ConfigT
    transport: Transport
    clock: Clock
    events: EventRecorder
    secrets: (
        Secrets  # to be told of every credential that is learned after the start: no event, log or error shows it then
    )


class Reads(enum.Enum):
    """What of a cloud's load balancers can be read as they are; for `LoadBalancerBackend.reads`."""

    NOTHING = "nothing"
    ONE = "one"  # that of one Service
    ALL = "all"  # also all of the cluster, in pages


class LoadBalancerBackend(abc.ABC, Generic[ConfigT]):
    """One cloud's load balancers. Opened before the first call and closed after the last, by the core."""

    config_model: ClassVar[type[BackendConfig]] = BackendConfig
    """The settings in --cloud-config; a subclass names its own model."""

    @property
    def abilities(self) -> Abilities:
        """
        What the cloud can do; a subclass has a class attribute of this name, or a property where that is learned in `open`.

        Silence is a no: what a Service asks for and is not here does not reach the backend, or is named to its user in an event. The kit
        checks that what is said is so.
        """
        return Abilities()

    @property
    def honours(self) -> frozenset[str]:
        """
        Members of `Honoured` and annotations of the backend's own that are carried out, which is what `abilities` says.

        A backend that was written before there were abilities has an attribute of this name; the core goes by that then.
        """
        return self.abilities.honours

    reads: ClassVar[Reads] = Reads.NOTHING
    """
    What `read_load_balancers` answers. More than NOTHING takes `desired_settings`, too, and then what is changed in the cloud behind the
    controller's back is found, named and repaired; ALL finds it without a request for each Service, spares them at a restart, and
    finds load balancers whose Service is gone.
    """

    def __init__(self, context: BackendContext[ConfigT]) -> None:
        self.context = context

    async def open(self) -> None:
        """
        Get ready: look up what all calls need, check the credentials.

        Called by every replica, also those that do not hold the Lease: read only. Raising is retried with a growing pause and
        keeps `/readyz` red.
        """

    async def close(self) -> None:
        """Release what `open` took. Called once, also after a failed `open`."""

    def options(self, service: Service) -> Options:
        """
        What the annotations of `service` ask for, typed; the core checked them before it calls ensure.

        Raises TerminalError for annotations that are wrong, as they may be at an update or a deletion.
        """
        return ccm_annotations.parse(service)

    @abc.abstractmethod
    async def get_load_balancer(self, service: Service) -> LoadBalancerStatus | None:
        """
        The addresses of the load balancer owned by `service`; None when there is none.

        None is a statement, not a guess: an error, a timeout, or an answer that may be stale is raised.
        """

    async def get_load_balancer_name(self, service: Service) -> str:
        """The name for a new load balancer of `service`. By default upstream's: "a" and the UID without dashes, 32 characters."""
        return default_load_balancer_name(service)

    def traffic(self, service: Service) -> Traffic | None:  # noqa: ARG002 - for those who override it
        """
        How the load balancer of `service` treats traffic, by the settings that `ensure_load_balancer` makes it from; no I/O.

        Given, the core chooses the ipMode of each address by the table in docs/ipmode.md, explains it, and does not look at the one
        that `ensure_load_balancer` answers. It then also publishes Proxy before it asks for PROXY protocol, TLS or HTTP on a living
        load balancer, which it cannot know of a backend that answers None, the default, and chooses by itself.

        What depends on the cloud and not on the Service is learned in `open`; until then it is unknown. A backend that raises
        ImplementedElsewhereError for a Service raises it here as well.
        """
        return None

    @abc.abstractmethod
    async def ensure_load_balancer(self, service: Service, nodes: Sequence[Node]) -> LoadBalancerStatus:
        """
        Make the cloud serve `service` from `nodes`; return the addresses it answers on, each IP with its ipMode (KEP-1860).

        `nodes` are the eligible ones, sorted by name; there may be none, and the load balancer is then made all the same. Those that the
        cluster autoscaler is about to delete are among them only if `traffic` says that kube-proxy is asked which nodes are well.

        ipMode says how traffic reaches a node: VIP when the destination address is kept, PROXY when the load balancer opens a connection
        of its own or adds something (PROXY protocol, TLS) that a short cut inside the cluster would lose. The annotation for ipMode is
        the core's.

        Returning says that the cloud has done it, and nodes are told so: raise RetryAfterError while it is still at work.

        What the Service's annotations ask for, `options` tells. Where these name a load balancer to adopt, it is taken over, in one
        request that the cloud refuses if it has an owner by then; one that is not there or has another owner is a TerminalError, and
        nothing is made in its place. An address that is asked for is given to a new load balancer, and never by making it anew.

        A port that cannot be served has an `error` in `ports` of each entry, and the others are served (KEP-1435).

        Raises:
            PortsError: nothing is made or changed, because these ports cannot be served.
            RetryAfterError: the cloud accepted the request and needs `delay` seconds more.
            TerminalError: nothing will help until the Service itself changes.
        """

    @abc.abstractmethod
    async def update_load_balancer(self, service: Service, nodes: Sequence[Node]) -> None:
        """
        Make the existing load balancer of `service` use exactly `nodes`; nothing but nodes changed since the last
        ensure, or what else changed was refused with a TerminalError and is not to be carried out here.

        A node that the cloud does not know (any more) is left out, said by an event, and does not stop the others. Raises if the load
        balancer is not there: it is then ensured.
        """

    @abc.abstractmethod
    async def ensure_load_balancer_deleted(self, service: Service) -> None:
        """
        Make sure that nothing of the load balancer of `service` is left, half-made parts included; absent is success.

        `service` is as last seen, its type or class may have changed, and it may be gone from the API. Never touches what another
        owner holds.
        """

    async def release_load_balancer(self, service: Service) -> None:
        """
        Let go of the load balancer of `service`: it serves on, and is nobody's from then on; absent is success.

        Called in place of `ensure_load_balancer_deleted` where the user wants to keep it, by those alone that honour `Honoured.KEEP`. Who
        adopts it later finds it by its id, and nobody finds it by its owner.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no load balancers")

    # ---- what is there, beside what is wanted: optional, see `reads`

    def read_load_balancers(self, uid: str | None = None) -> AsyncIterator[Sequence[ActualLoadBalancer]]:
        """
        The load balancers of this cluster (`context.cluster_id`) as the cloud has them, page by page, half-made ones included; with
        `uid`, only that of the Service with this UID, an empty page or none if there is none.

        An async generator that only reads, asked by replicas and commands that do not hold the Lease as well, and while another
        call for the same Service is under way. Whoever is not tagged as this cluster's is never among them. All of them may be as old as
        the cloud's list is; that of one Service is as it is now. What was created while the pages were read may be missing.

        Raises as `get_load_balancer`: a page that cannot be read is an error, never a shorter list.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no load balancers")

    async def desired_settings(self, service: Service, nodes: Sequence[Node]) -> Settings:
        """
        What `ensure_load_balancer` would make of `service` and `nodes`, in the words of `read_load_balancers`; the cloud is not asked.

        After a successful ensure it differs in nothing from what is read then. Raises what ensure raises for such a Service.
        """
        raise NotImplementedError(f"{type(self).__name__} tells no settings")

    def status_of(self, service: Service, actual: ActualLoadBalancer) -> LoadBalancerStatus | None:  # noqa: ARG002
        """
        What `ensure_load_balancer` would answer for a load balancer that needs no change; the cloud is not asked.

        It spares the request after a restart. None, the default: not known, ensure is asked.
        """
        return None


def default_load_balancer_name(service: Service) -> str:
    """Upstream's name (`cloudprovider.DefaultLoadBalancerName`): a letter first, no dashes, 32 characters at most."""
    return ("a" + service.uid.replace("-", ""))[:32]
