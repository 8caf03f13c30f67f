"""A controller between an API server and a cloud, both in memory; time is the event loop's, and virtual."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from ccm_lb.backends.base import BackendContext
from ccm_lb.controller.capable import Capable
from ccm_lb.controller.controller import Controller
from ccm_lb.controller.drift import DriftPolicy, Mode
from ccm_lb.controller.orphans import Sweep
from ccm_lb.controller.predicates import Scope
from ccm_lb.controller.publish import Advice, NoAdvice, Policy
from ccm_lb.controller.reconcile import Dependencies, Reconciler
from ccm_lb.controller.resync import Resync
from ccm_lb.controller.state import ClusterState
from ccm_lb.controller.workqueue import Workqueue
from ccm_lb.errors import CCMError
from ccm_lb.objects import Key
from ccm_lb.redaction import Secrets
from ccm_lb.testing import builders
from ccm_lb.testing.builders import Json, Tweak
from ccm_lb.testing.fakes import FakeClock, FakeServices, OpenFence, RecordedEvents
from ccm_lb.testing.memory import Call, MemoryBackend, MemoryCloud, MemoryConfig
from ccm_lb.testing.transports import NoTransport

CLUSTER = "c1"
KEY = Key("lb", "web")
UID = builders.SERVICE_UID
OTHER_UID = "5e7f1c3a-0000-4000-8000-000000000002"
DEBOUNCE = 1.0

ENSURING = "Normal EnsuringLoadBalancer Ensuring load balancer"
ENSURED = "Normal EnsuredLoadBalancer Ensured load balancer"
CHOSEN = "Normal IPModeChosen ipMode Proxy for 203.0.113.1: it is the provider's default for public addresses"
DELETING = "Normal DeletingLoadBalancer Deleting load balancer"
DELETED = "Normal DeletedLoadBalancer Deleted load balancer"
UPDATED = "Normal UpdatedLoadBalancer Updated load balancer with new hosts"
NO_NODES = "Warning UnAvailableLoadBalancer There are no available nodes for LoadBalancer"


class Outcomes:
    """Operation and outcome of each reconcile, and the ages at which Services got their first address."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []
        self.ages: list[float] = []
        self.contests: list[str] = []
        self.drifts: list[str] = []
        self.orphaned = self.orphans_deleted = 0

    def reconciled(self, operation: str, outcome: str, seconds: float) -> None:
        self.all.append((operation, outcome))

    def addressed(self, seconds: float) -> None:
        self.ages.append(seconds)

    def contested(self, what: str) -> None:
        self.contests.append(what)

    def drifted(self, action: str) -> None:
        self.drifts.append(action)

    def orphans(self, count: int) -> None:
        self.orphaned = count

    def orphan_deleted(self) -> None:
        self.orphans_deleted += 1


class QueueObserver:
    """Takes note of how often the queue gave out work."""

    def __init__(self) -> None:
        self.starts = 0

    def depth(self, n: int) -> None: ...
    def added(self) -> None: ...
    def started(self, queued_seconds: float) -> None:
        self.starts += 1

    def finished(self, work_seconds: float) -> None: ...
    def retried(self) -> None: ...


class World:
    """
    What lasts (`api`, `cloud`, `events`) and the controller process (everything made by `start_process`).

    The watch is instant; `hold_watch` keeps its events back until `release_watch`. With `field_selector` the watch shows LoadBalancer
    Services only, as the real one does.
    """

    advice: Advice = NoAdvice()
    backend_class: type[MemoryBackend] = MemoryBackend
    orphan_grace = 0.0

    def __init__(
        self,
        scope: Scope | None = None,
        *,
        field_selector: bool = False,
        policy: Policy | None = None,
        drift: DriftPolicy | None = None,
    ) -> None:
        """Nobody looks for drift unless `drift` says so: most tests count what the cloud is asked."""
        self.drift = drift or DriftPolicy(Mode.OFF)
        self.scope = scope or Scope()
        self.policy = policy or Policy()
        self.field_selector = field_selector
        self.api = FakeServices()
        self.cloud = MemoryCloud()
        self.events = RecordedEvents()
        self.held: list[tuple[str, str, Json]] | None = None
        self._shown: set[Key] = set()
        self.api.watch(self._watch)
        self.start_process()

    def start_process(self) -> None:
        """A new controller that knows nothing."""
        self.fence = OpenFence()
        self.state = ClusterState(self.scope)
        self.outcomes, self.observer = Outcomes(), QueueObserver()
        self.node_syncs: list[float] = []  # seconds from a node change until every load balancer had it
        context = BackendContext(
            CLUSTER, MemoryConfig(cloud=self.cloud), NoTransport(), FakeClock(), self.events, Secrets()
        )
        backend = Capable(self.backend_class(context))
        deps = Dependencies(
            self.api,
            backend,
            self.events,
            self.fence,
            self.outcomes,
            "ccm-lb",
            self.policy,
            self.advice,
            self.drift,
            Sweep(self.api, backend.ensure_load_balancer_deleted, self.state, self.outcomes, self.orphan_grace),
        )
        self.reconciler = Reconciler(deps, self.state)
        self.queue: Workqueue[Key] = Workqueue(self.observer)
        self.controller = Controller(self.state, self.reconciler, self.queue, DEBOUNCE, self.node_syncs.append)
        self.resync = Resync(self.state, self.api, self.controller, 300.0)

    # ---- what the watch shows

    def _watch(self, resource: str, event: str, obj: Json) -> None:
        shown = self._through_selector(resource, event, obj)
        if shown is None:
            return
        if self.held is not None:
            self.held.append((resource, shown, obj))
        else:
            self.controller.on_event(resource, shown, obj)

    def _through_selector(self, resource: str, event: str, obj: Json) -> str | None:
        if resource != "services" or not self.field_selector:
            return event
        key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
        before, now = key in self._shown, event != "DELETED" and obj["spec"]["type"] == "LoadBalancer"
        (self._shown.add if now else self._shown.discard)(key)
        return {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get((before, now))

    def hold_watch(self) -> None:
        self.held = []

    def release_watch(self) -> None:
        held, self.held = self.held or [], None
        for resource, event, obj in held:
            self.controller.on_event(resource, event, obj)

    def list_everything(self) -> None:
        """What the watch delivers first: all there is, without a type."""
        for name in ("n1", "n2", "n3", "n4", "n5"):
            if (node := self.api.object(Key("", name), "nodes")) is not None:
                self.controller.on_event("nodes", None, node)
        if (service := self.api.object(KEY)) is not None and (
            not self.field_selector or service["spec"]["type"] == "LoadBalancer"
        ):
            self.controller.on_event("services", None, service)

    # ---- the user

    def add_nodes(self, *names: str) -> None:
        for name in names or ("n1", "n2", "n3"):
            self.api.create(builders.node_json(name))

    def create(self, *tweaks: Tweak) -> None:
        self.api.create(builders.service_json(*tweaks))

    def edit(self, *tweaks: Tweak, manager: str = "kubectl") -> None:
        self.api.edit(builders.service_json(), *tweaks, manager=manager)

    def delete(self) -> None:
        self.api.delete(builders.service_json())

    def vanish(self) -> None:
        """The Service goes at once: somebody took the finalizers off and deleted it."""
        self.edit({"metadata": {"finalizers": None}})
        self.delete()

    def slow(self, verb: str) -> asyncio.Event:
        """The cloud takes its time for the next `verb`, until the event is set."""
        answer = asyncio.Event()
        self.cloud.script.then(verb, answer)
        return answer

    # ---- what is there

    @property
    def service(self) -> Mapping[str, Any]:
        found = self.api.object(KEY)
        assert found is not None, "the Service is gone"
        return found

    @property
    def gone(self) -> bool:
        return self.api.object(KEY) is None

    @property
    def condition(self) -> Mapping[str, Any] | None:
        """LoadBalancerPortsError."""
        conditions = self.service["status"].get("conditions", [])
        return next((one for one in conditions if one["type"] == "LoadBalancerPortsError"), None)

    @property
    def finalizers(self) -> list[str]:
        return list(self.service["metadata"].get("finalizers", []))

    @property
    def ingress(self) -> list[Mapping[str, Any]]:
        return list(self.service["status"]["loadBalancer"].get("ingress") or [])

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of the Service's load balancer, the one with its present UID."""
        return self.cloud.load_balancers[CLUSTER, self.service["metadata"]["uid"]].targets

    def forget_history(self) -> None:
        """Later looks at events, calls and patches see only what comes now."""
        self.events.all.clear()
        self.cloud.calls.clear()
        self.cloud.mutations.clear()
        self.api.patches.clear()
        self.outcomes.all.clear()

    @contextlib.asynccontextmanager
    async def working(self, workers: int = 4) -> AsyncIterator[None]:
        """The controller holds the Lease inside the block."""
        work = asyncio.create_task(self.controller.work(workers))
        await settle()
        try:
            yield
        finally:
            self.controller.stop()
            await asyncio.wait_for(work, 1000)
        assert self.cloud.overlaps == []

    @classmethod
    def reconciling(cls, policy: Policy | None = None) -> World:
        """With nodes and the Lease, for tests that call `reconcile` themselves."""
        world = cls(policy=policy)
        world.add_nodes()
        world.state.take_over()
        return world

    async def reconcile(self) -> None:
        await self.reconciler.reconcile(KEY)

    async def restarted(self) -> None:
        """A new process, which verifies what it finds; history is what it does."""
        self.start_process()
        self.state.take_over()
        self.list_everything()
        self.forget_history()
        await self.reconcile()

    async def failed(self, error: type[Exception] = CCMError) -> str:
        """What a reconcile says that has to fail."""
        with pytest.raises(error) as caught:
            await self.reconcile()
        return str(caught.value)

    async def reconciled(self) -> None:
        """A Service and its load balancer, made by one reconcile; history is forgotten."""
        self.create()
        await self.reconcile()
        assert self.ingress
        self.forget_history()

    async def served(self) -> None:
        """Nodes, a Service, and its load balancer; history is forgotten."""
        self.add_nodes()
        self.create()
        await settle(5)
        assert self.ingress
        self.forget_history()


class CallTimes:
    """When the cloud was called with a verb, in seconds since this was made."""

    def __init__(self, world: World, verb: str) -> None:
        self._began = asyncio.get_running_loop().time()
        self._verb = verb
        self.all: list[float] = []
        world.cloud.on_call = self._note

    def _note(self, call: Call) -> None:
        if call.verb == self._verb:
            self.all.append(round(asyncio.get_running_loop().time() - self._began, 3))

    def gaps(self) -> list[float]:
        """Whole seconds from one call to the next."""
        return [round(after - before) for before, after in itertools.pairwise(self.all)]


async def settle(seconds: float = 0.01) -> None:
    """Let everything happen that needs no more than this much virtual time."""
    await asyncio.sleep(seconds)
