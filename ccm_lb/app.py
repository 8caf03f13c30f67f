"""
The composition root: makes every object, hands each what it needs, and ends them in the right order.

A replica gets ready (cluster, backend, a filled cache), waits for the Lease, works while it holds it, and ends: after SIGTERM in good
order, after the loss of the Lease at once. The Lease is given back when nothing of this process is on its way any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from ccm_lb.backends import registry
from ccm_lb.backends.base import BackendContext, LoadBalancerBackend
from ccm_lb.clock import SystemClock
from ccm_lb.controller import serviceevents
from ccm_lb.controller.addresses import Kind
from ccm_lb.controller.capable import Capable
from ccm_lb.controller.census import Census
from ccm_lb.controller.controller import Controller
from ccm_lb.controller.drift import DriftPolicy, Mode
from ccm_lb.controller.orphans import Sweep
from ccm_lb.controller.predicates import Scope
from ccm_lb.controller.publish import Policy
from ccm_lb.controller.reconcile import Dependencies, Reconciler
from ccm_lb.controller.resync import Resync
from ccm_lb.controller.state import ClusterState
from ccm_lb.controller.workqueue import Workqueue
from ccm_lb.dataplane.clients import follower
from ccm_lb.dataplane.clients.follower import ServiceProxyFollower
from ccm_lb.dataplane.clients.mismatch import ServiceAdvice
from ccm_lb.dataplane.cluster.detect import ServiceProxyDetector
from ccm_lb.http.transport import CloudTransport
from ccm_lb.kube.api import FIELD_MANAGER, KubeApi
from ccm_lb.kube.cluster import Cluster, server_addresses
from ccm_lb.kube.connect import connect
from ccm_lb.kube.events import Recorder
from ccm_lb.kube.leaderelection import LeaseElector, LeaseLostError, NoElection, Timing
from ccm_lb.kube.watch import Watch, WatchOptions
from ccm_lb.objects import Key
from ccm_lb.process import log
from ccm_lb.process.health import REASON, Checks, HealthServer
from ccm_lb.process.metrics import Metrics
from ccm_lb.process.tasks import end, pending, persist, unless
from ccm_lb.redaction import Secrets
from ccm_lb.settings.config import Config

logger = logging.getLogger(__name__)

_SWITCH_INTERVAL = 0.0005  # seconds after which a busy thread lets the other one go on
_LAST_EVENTS = 1.0  # seconds for events that wait to be written at the end
_WATCH_END = 1.0  # seconds for kopf to end; its thread is a daemon

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What is made without asking anybody."""

    config: Config
    backend_class: type[LoadBalancerBackend[Any]]
    backend_config: Any
    clock: SystemClock
    metrics: Metrics
    checks: Checks
    server: HealthServer
    api: KubeApi
    elector: LeaseElector | NoElection
    transport: CloudTransport
    recorder: Recorder
    secrets: Secrets


@dataclasses.dataclass(frozen=True)
class _Ready:
    """A replica that could work at any moment."""

    controller: Controller
    resync: Resync
    service_proxy: ServiceProxyFollower


async def run(config: Config, secrets: Secrets | None = None, notes: Sequence[str] = ()) -> int:
    """
    Run one replica until SIGTERM or SIGINT (0) or the loss of its Lease (1). A second signal ends the process at once. `notes` are
    for the log's beginning.

    Raises ConfigError for what no retry would cure.
    """
    secrets = secrets or Secrets()
    log.configure(config.log_format, config.v, sys.stderr, secrets)
    log.catch_what_nobody_catches()
    for note in notes:
        logger.info(note)
    stopping = _stop_on_signals()
    # Two loops in two threads: at the default of 5 ms, each socket write of one waits that long while the other is busy.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    async with contextlib.AsyncExitStack() as stack:
        parts = await _open(config, secrets, stack)
        ready = await unless(stopping, _prepare(parts, stack))
        if ready is None or await unless(stopping, _acquired(parts)) is None:
            return 0
        return await _work(parts, ready, stopping)
    raise AssertionError("an exit callback swallowed an exception")


async def _open(config: Config, secrets: Secrets, stack: contextlib.AsyncExitStack) -> _Parts:
    """Make everything that needs no other machine; the health endpoints answer from here on. Raises ConfigError."""
    backend_class = registry.load(config.cloud_provider)
    backend_config = registry.backend_config(backend_class, config.cloud_config, secrets)
    clock, metrics, checks = SystemClock(), Metrics(), Checks(secrets)
    server = HealthServer(config, checks, metrics.render)
    await server.start()
    stack.push_async_callback(server.stop)
    api = await connect(
        config.kubeconfig,
        config.master,
        user_agent=f"ccm-lb/{version('ccm-lb')}",
        qps=config.kube_api_qps,
        burst=config.kube_api_burst,
        field_manager=field_manager(config),
        observer=metrics.kube_request,
        secrets=secrets,
    )
    stack.push_async_callback(api.close)
    lease_api = api.sibling()
    stack.push_async_callback(lease_api.close)
    elector = _elector(config, lease_api, clock)
    stack.push_async_callback(elector.release)
    transport = CloudTransport(elector, clock, observer=metrics.cloud_request, secrets=secrets)
    await transport.open()
    stack.push_async_callback(transport.close)
    # The API server paces Events and Services apart (priority and fairness), so a pause of the one is none of the other.
    event_api = api.sibling()
    stack.push_async_callback(event_api.close)
    recorder = Recorder(event_api, observer=metrics, secrets=secrets)
    recorder.start()
    stack.push_async_callback(recorder.stop)
    stack.push_async_callback(recorder.flush, _LAST_EVENTS)
    return _Parts(
        config,
        backend_class,
        backend_config,
        clock,
        metrics,
        checks,
        server,
        api,
        elector,
        transport,
        recorder,
        secrets,
    )


def field_manager(config: Config) -> str:
    """The installation's, by its Lease: it tells our finalizers from those of another installation, which serves other classes."""
    lease = f"{config.leader_elect_resource_namespace}/{config.leader_elect_resource_name}"
    return FIELD_MANAGER if lease == "kube-system/cloud-controller-manager" else f"{FIELD_MANAGER}/{lease}"[:128]


def _elector(config: Config, api: KubeApi, clock: SystemClock) -> LeaseElector | NoElection:
    if not config.leader_elect:
        return NoElection()
    return LeaseElector(
        api,
        clock,
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        namespace=config.leader_elect_resource_namespace,
        name=config.leader_elect_resource_name,
        timing=Timing(
            config.leader_elect_lease_duration, config.leader_elect_renew_deadline, config.leader_elect_retry_period
        ),
    )


async def _prepare(parts: _Parts, stack: contextlib.AsyncExitStack) -> _Ready:
    """Ask the cluster and the cloud what is needed before work, for as long as it takes; the cache is full in the end."""
    config, cluster = parts.config, Cluster(parts.api)
    waiting = {"api": "not asked yet", "cloud": "not opened yet", "cache": "not filled yet"}
    for name in waiting:
        parts.checks.register(name, pending(waiting, name))
    parts.checks.register("lease", parts.elector.failure)
    cluster_id = config.cluster_name
    if cluster_id is None:
        cluster_id = await persist(waiting, "api", cluster.cluster_id)
    options = await persist(waiting, "api", lambda: _watch_options(cluster))
    del waiting["api"]

    backend = Capable(
        parts.backend_class(
            BackendContext(
                cluster_id, parts.backend_config, parts.transport, parts.clock, parts.recorder, parts.secrets
            )
        )
    )
    stack.push_async_callback(backend.close)
    await persist(waiting, "cloud", backend.open)
    del waiting["cloud"]

    scope = Scope(frozenset(config.load_balancer_class), config.handle_unclassed)
    state = ClusterState(scope)
    service_proxy = ServiceProxyFollower(
        ServiceAdvice(parts.recorder, lambda: state.services),
        parts.elector.holds,
        parts.metrics.service_proxy,
        state.nodes,
    )
    policy = Policy(
        allowed=frozenset(map(Kind, config.allow_addresses)),
        hostname_suffix=config.hostname_suffix or "",
        api_server=await server_addresses(parts.api.server),
        service_proxy=service_proxy.hint,
        proxy_versions=service_proxy.versions,
    )
    deps = Dependencies(
        cluster,
        backend,
        parts.recorder,
        parts.elector,
        parts.metrics,
        field_manager(config),
        policy,
        service_proxy,
        DriftPolicy(Mode(config.drift), config.drift_period),
        Sweep(cluster, backend.ensure_load_balancer_deleted, state, parts.metrics, config.delete_orphans_after),
    )
    queue: Workqueue[Key] = Workqueue(parts.metrics.workqueue)
    controller = Controller(
        state, Reconciler(deps, state), queue, config.node_sync_debounce, parts.metrics.nodes_synced
    )
    resync = Resync(state, cluster, controller, config.resync_period)
    census = Census(scope, time.monotonic)
    parts.metrics.before_rendering(lambda: _gauges(parts, state))
    parts.metrics.before_rendering(lambda: parts.metrics.counted(census.take(state.services, queue.failures)))

    parts.server.report(lambda: _work_report(parts, scope, controller))

    def on_event(resource: str, event: str | None, obj: Mapping[str, Any]) -> None:
        controller.on_event(resource, event, obj)
        resync.seen()

    # A list shows what exists: what vanished before it, only a comparison finds.
    watch = Watch(parts.api, options, on_event, resync.soon, parts.metrics.watch_restarted)
    watch.start()
    stack.push_async_callback(watch.stop, _WATCH_END)
    parts.checks.register("watch", watch.failure, live=watch.lost)
    await _follow(service_proxy, controller, parts, stack)
    await persist(waiting, "cache", resync.fill)
    del waiting["cache"]
    keeping = asyncio.create_task(resync.keep(), name="resync")
    stack.push_async_callback(end, keeping)
    logger.info(
        "ready", extra={"cluster_id": cluster_id, "backend": config.cloud_provider, **dataclasses.asdict(options)}
    )
    return _Ready(controller, resync, service_proxy)


async def _follow(
    service_proxy: ServiceProxyFollower, controller: Controller, parts: _Parts, stack: contextlib.AsyncExitStack
) -> None:
    """Look at the cluster's service proxy from now on; returns after the first look, or soon without it."""
    api = parts.api.sibling()  # its requests are not to wait in the way of the work's
    stack.push_async_callback(api.close)
    detector = ServiceProxyDetector(api, [service_proxy, lambda *_: controller.service_proxy_changed()])
    task = asyncio.create_task(follower.keep(detector), name="service-proxy")
    stack.push_async_callback(end, task)
    await detector.looked(follower.PATIENCE)


def _work_report(parts: _Parts, scope: Scope, controller: Controller) -> dict[str, Any]:
    """What `/work` answers; `ccm-lb status` reads it."""
    return {
        "leading": parts.elector.holds(),
        "backend": parts.config.cloud_provider,
        "classes": sorted(scope.classes),
        "unclassed": scope.unclassed,
        **controller.at_work.report(lambda reason: parts.secrets.line(reason, REASON)),
    }


def _gauges(parts: _Parts, state: ClusterState) -> None:
    parts.metrics.cached(len(state.services), len(state.node_names()))
    parts.metrics.leading(parts.config.leader_elect_resource_name, holds=parts.elector.holds())


async def _watch_options(cluster: Cluster) -> WatchOptions:
    return WatchOptions(await cluster.service_selector(), await cluster.streams_lists())


async def _acquired(parts: _Parts) -> bool:
    await parts.elector.acquire()
    return True


async def _take_over(parts: _Parts, ready: _Ready) -> None:
    """Learn what the last holder may have left half done, and what it said, then work."""
    await asyncio.gather(
        persist({}, "cache", ready.resync.catch_up), parts.recorder.recall(parts.api, serviceevents.STANDING)
    )
    ready.service_proxy.take_over()
    await ready.controller.work(parts.config.concurrent_service_syncs)


async def _work(parts: _Parts, ready: _Ready, stopping: asyncio.Event) -> int:
    """Work until told to stop, then finish what is under way; the exit code."""
    hold = asyncio.create_task(parts.elector.hold(), name="hold")
    work = asyncio.create_task(_take_over(parts, ready), name="work")
    stop = asyncio.create_task(stopping.wait(), name="stop")
    try:
        await asyncio.wait({work, hold, stop}, return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            logger.info("stopping: running calls are finished", extra={"grace": parts.config.shutdown_grace})
            ready.controller.stop()
            await asyncio.wait({work, hold}, timeout=parts.config.shutdown_grace, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                logger.warning("running calls are abandoned; the next holder of the Lease repairs what they left")
        if hold.done():
            hold.result()
        elif work.done():
            work.result()
        return 0
    except LeaseLostError:
        return 1  # said by the elector; the others must not wait for us
    finally:
        await end(work, hold, stop)


# ---- small things


def _stop_on_signals() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second ends the process, as a shell would say it: 128 and its number."""
    stopping = asyncio.Event()

    def on_signal(number: signal.Signals) -> None:
        if stopping.is_set():
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    return stopping
