"""
What Prometheus reads: upstream's metrics under upstream's names, and what upstream has no number for as `ccm_lb_*`.

All seconds are float. One registry for each `Metrics`, none of the process.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Sequence
from importlib import metadata

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from ccm_lb.controller.census import Count
from ccm_lb.dataplane.model import ServiceProxy

_POWERS_OF_TWO = tuple(2.0**n for n in range(15))  # upstream's service controller: 1 s to 4.5 h
_QUEUE_DECADES = tuple(10.0**n for n in range(-8, 2))  # client-go's workqueue: 10 ns to 10 s
_REQUEST_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)  # client-go's rest_client
_WAIT_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class _Meter:
    """Makes metrics in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry)

    def histogram(self, name: str, text: str, labels: Sequence[str] = (), *, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, text, labels, registry=self._registry, buckets=buckets)


class WorkqueueMetrics:
    """client-go's workqueue metrics with name="service" (a `workqueue.Observer`)."""

    def __init__(self, meter: _Meter, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._begun: list[float] = []  # when the work that is under way began, sorted
        label, name = ("name",), "service"
        depth = meter.gauge("workqueue_depth", "Keys that wait to be worked on.", label)
        adds = meter.counter("workqueue_adds_total", "Keys added.", label)
        retries = meter.counter("workqueue_retries_total", "Keys added again after a failure.", label)
        waited = meter.histogram(
            "workqueue_queue_duration_seconds", "Time a key waits before work begins.", label, buckets=_QUEUE_DECADES
        )
        worked = meter.histogram(
            "workqueue_work_duration_seconds", "Time that the work on a key takes.", label, buckets=_QUEUE_DECADES
        )
        unfinished = meter.gauge(
            "workqueue_unfinished_work_seconds", "Time spent so far on work under way, in sum.", label
        )
        longest = meter.gauge(
            "workqueue_longest_running_processor_seconds", "Time spent on the longest work under way.", label
        )
        self._depth, self._adds, self._retries = depth.labels(name), adds.labels(name), retries.labels(name)
        self._waited, self._worked = waited.labels(name), worked.labels(name)
        unfinished.labels(name).set_function(lambda: sum(self._monotonic() - one for one in self._begun))
        longest.labels(name).set_function(lambda: self._monotonic() - self._begun[0] if self._begun else 0.0)

    def depth(self, n: int) -> None:
        self._depth.set(n)

    def added(self) -> None:
        self._adds.inc()

    def retried(self) -> None:
        self._retries.inc()

    def started(self, queued_seconds: float) -> None:
        self._waited.observe(queued_seconds)
        bisect.insort(self._begun, self._monotonic())

    def finished(self, work_seconds: float) -> None:
        self._worked.observe(work_seconds)
        if self._begun:
            # The queue does not say which work ended; the one that began when this one must have is as good.
            began = self._monotonic() - work_seconds
            self._begun.remove(min(self._begun, key=lambda one: abs(one - began)))


class Metrics:
    """Everything that is counted; other modules get this object, or a method of it, as their observer."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        # Half of the output otherwise: a creation time for every counter and histogram, which upstream does not have.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self._registry)
        meter = _Meter(self._registry)
        self._measures: list[Callable[[], None]] = []
        self.workqueue = WorkqueueMetrics(meter, monotonic)
        self._make_upstream(meter)
        self._make_own(meter)
        build = meter.gauge("ccm_lb_build_info", "Always 1; the labels say what runs.", ("version", "kopf"))
        build.labels(metadata.version("ccm-lb"), metadata.version("kopf")).set(1)

    def _make_upstream(self, meter: _Meter) -> None:
        self._syncs = meter.counter(
            "service_controller_loadbalancer_sync_total", "Load balancers updated with new nodes."
        )
        self._node_errors = meter.counter("service_controller_nodesync_error_total", "Failed updates with new nodes.")
        self._node_sync = meter.histogram(
            "service_controller_nodesync_latency_seconds",
            "Time from a change of the nodes until all load balancers have it.",
            buckets=_POWERS_OF_TWO,
        )
        self._host_update = meter.histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            "Time to update one load balancer with new nodes.",
            buckets=_POWERS_OF_TWO,
        )
        self._requests = meter.counter(
            "rest_client_requests_total", "Requests to the Kubernetes API.", ("code", "method", "host")
        )
        self._request_seconds = meter.histogram(
            "rest_client_request_duration_seconds",
            "Time of a request to the Kubernetes API.",
            ("verb", "host"),
            buckets=_REQUEST_SECONDS,
        )
        self._running = meter.gauge(
            "running_managed_controllers", "Whether the controller works: 1 or 0.", ("name", "manager")
        )
        self._leader = meter.gauge(
            "leader_election_master_status", "Whether this replica holds the Lease: 1 or 0.", ("name",)
        )

    def _make_own(self, meter: _Meter) -> None:
        self._reconciles = meter.counter(
            "ccm_lb_reconcile_total", "Reconciles by operation and outcome.", ("operation", "outcome")
        )
        self._reconcile_seconds = meter.histogram(
            "ccm_lb_reconcile_duration_seconds", "Time of a reconcile.", ("operation",), buckets=_WAIT_SECONDS
        )
        self._cloud = meter.counter("ccm_lb_cloud_requests_total", "Requests to the cloud.", ("method", "code"))
        self._cloud_seconds = meter.histogram(
            "ccm_lb_cloud_request_duration_seconds",
            "Time of a request to the cloud.",
            ("method",),
            buckets=_REQUEST_SECONDS,
        )
        self._to_address = meter.histogram(
            "ccm_lb_time_to_address_seconds",
            "Time from the creation of a Service until its address is published.",
            buckets=_WAIT_SECONDS,
        )
        self._contests = meter.counter(
            "ccm_lb_contests_total", "Services of which something became contested: undone again and again.", ("field",)
        )
        self._drift = meter.counter(
            "ccm_lb_drift_total",
            "Load balancers that were found changed in the cloud, by what was done about it.",
            ("action",),
        )
        for action in ("repaired", "reported"):
            self._drift.labels(action)  # from 0 on, so that the first one is a rise
        self._orphans = meter.gauge(
            "ccm_lb_orphaned_load_balancers", "Load balancers of this cluster that no Service wants, at the last look."
        )
        self._orphans_deleted = meter.counter(
            "ccm_lb_orphans_deleted_total", "Orphaned load balancers that were deleted."
        )
        self._services = meter.gauge("ccm_lb_cached_services", "Services known.")
        self._states = meter.gauge(
            "ccm_lb_services", "Services of this controller by what became of them; each is counted once.", ("state",)
        )
        self._longest_wait = meter.gauge(
            "ccm_lb_services_longest_wait_seconds",
            "Time that the Service which waits longest has been pending, failing or deleting.",
        )
        self._nodes = meter.gauge("ccm_lb_cached_nodes", "Nodes known.")
        self._events = meter.counter("ccm_lb_events_written_total", "Writes of Kubernetes events.")
        self._events_dropped = meter.counter("ccm_lb_events_dropped_total", "Kubernetes events given up.", ("reason",))
        self._service_proxy = meter.gauge(
            "ccm_lb_service_proxy_info",
            "Always 1; the labels say what routes Services in this cluster, and how well that is known.",
            ("kind", "mode", "version", "confidence"),
        )
        self._watch_restarts = meter.counter("ccm_lb_watch_restarts_total", "Times that watching had to begin anew.")

    # ---- what observers say

    def reconciled(self, operation: str, outcome: str, seconds: float) -> None:
        """A reconcile ended (a `reconcile.Observer`); `update` is what upstream calls a node sync of one load balancer."""
        self._reconciles.labels(operation, outcome).inc()
        self._reconcile_seconds.labels(operation).observe(seconds)
        if operation == "update":
            self._syncs.inc()
            self._host_update.observe(seconds)
            if outcome != "success":
                self._node_errors.inc()

    def nodes_synced(self, seconds: float) -> None:
        """All load balancers have the latest nodes, `seconds` after these changed."""
        self._node_sync.observe(seconds)

    def kube_request(self, method: str, code: str, seconds: float, host: str) -> None:
        """A request to the Kubernetes API ended with this status (an `api.Observer`); "error" stands for no answer."""
        self._requests.labels("<error>" if code == "error" else code, method, host).inc()
        self._request_seconds.labels(method, host).observe(seconds)

    def cloud_request(self, method: str, code: int | str | None, seconds: float) -> None:
        """A request to the cloud ended with this status (a `transport.Observer`); None and text stand for no answer."""
        self._cloud.labels(method, "error" if code is None else str(code)).inc()
        self._cloud_seconds.labels(method).observe(seconds)

    def leading(self, name: str, *, holds: bool) -> None:
        """Whether the Lease `name` is held."""
        self._leader.labels(name).set(int(holds))
        self._running.labels("service", "cloud-controller-manager").set(int(holds))

    def addressed(self, seconds: float) -> None:
        """A Service got its first address, `seconds` after its creation."""
        self._to_address.observe(seconds)

    def contested(self, what: str) -> None:
        """Something of a Service is undone again and again: `status`, `finalizer`, `service`, `cloud`, `drift`."""
        self._contests.labels(what).inc()

    def drifted(self, action: str) -> None:
        """A load balancer was found changed in the cloud: `repaired` or `reported`."""
        self._drift.labels(action).inc()

    def orphans(self, count: int) -> None:
        """So many load balancers of this cluster are wanted by no Service (an `orphans.Observer`)."""
        self._orphans.set(count)

    def orphan_deleted(self) -> None:
        self._orphans_deleted.inc()

    def cached(self, services: int, nodes: int) -> None:
        """How many objects are known."""
        self._services.set(services)
        self._nodes.set(nodes)

    def counted(self, count: Count) -> None:
        """What became of the Services."""
        for state in ("served", "pending", "failing", "deleting"):
            self._states.labels(state).set(getattr(count, state))
        self._longest_wait.set(count.longest_wait)

    def event_posted(self) -> None:
        """A Kubernetes event was written (an `events.Observer`)."""
        self._events.inc()

    def event_dropped(self, reason: str, n: int = 1) -> None:
        """Kubernetes events were given up: `spam`, `overflow`, `refused`, `unreachable`."""
        self._events_dropped.labels(reason).inc(n)

    def watch_restarted(self) -> None:
        """The watch ended and begins anew."""
        self._watch_restarts.inc()

    def service_proxy(self, proxy: ServiceProxy) -> None:
        """What routes Services in this cluster, from now on."""
        self._service_proxy.clear()
        self._service_proxy.labels(proxy.kind, proxy.mode or "", str(proxy.version or ""), proxy.confidence).set(1)

    def before_rendering(self, measure: Callable[[], None]) -> None:
        """Call `measure` before each scrape: it sets the gauges of what is cheaper to look at than to follow."""
        self._measures.append(measure)

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        for measure in self._measures:
            measure()
        return generate_latest(self._registry)
