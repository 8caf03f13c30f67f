"""Prometheus metrics: traffic by listener and target, and the API's calls."""

from collections.abc import Awaitable, Callable, Iterator

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fakecloud.api.operations import Services
from fakecloud.models.queries import CallFilter
from fakecloud.models.views import LoadBalancerView

_LISTENER = ("load_balancer", "protocol", "address", "port")
_TARGET = ("load_balancer", "target", "address", "port")
_COUNTED = (
    ("connections", "Connections", "connections"),
    ("received_bytes", "Bytes from clients", "bytes_in"),
    ("sent_bytes", "Bytes to clients", "bytes_out"),
)


class CloudCollector(Collector):
    """Reads the counters when they are asked for; nothing is counted twice."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        cloud = self._services.cloud
        views = [cloud.view(load_balancer) for load_balancer in cloud.state.load_balancers.values()]
        yield GaugeMetricFamily("fakecloud_load_balancers", "Load balancers there are", len(views))
        yield from _listeners(views)
        yield from _targets(views)
        calls = CounterMetricFamily(
            "fakecloud_api_calls", "Calls of the API that the journal holds", labels=("method", "status", "outcome")
        )
        totals: dict[tuple[str, str, str], int] = {}
        for one in self._services.journal.counts(CallFilter()).items:
            key = (one.method, str(one.status), one.outcome.value)
            totals[key] = totals.get(key, 0) + one.count
        for labels, count in totals.items():
            calls.add_metric(labels, count)
        yield calls


def handler(services: Services) -> Callable[[web.Request], Awaitable[web.Response]]:
    """GET /metrics, in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(CloudCollector(services))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": "text/plain; version=0.0.4"})

    return metrics


def _listeners(views: list[LoadBalancerView]) -> Iterator[Metric]:
    active = GaugeMetricFamily("fakecloud_listener_active_connections", "Connections now", labels=_LISTENER)
    counters = [
        (CounterMetricFamily(f"fakecloud_listener_{name}", text, labels=_LISTENER), attribute)
        for name, text, attribute in _COUNTED
    ]
    for view in views:
        for one in view.status.listeners:
            labels = (view.id, one.protocol, one.address, str(one.port))
            active.add_metric(labels, one.active_connections)
            for metric, attribute in counters:
                metric.add_metric(labels, getattr(one, attribute))
    yield active
    yield from (metric for metric, _ in counters)


def _targets(views: list[LoadBalancerView]) -> Iterator[Metric]:
    healthy = GaugeMetricFamily("fakecloud_target_healthy", "1 healthy, 0 not, NaN not known", labels=_TARGET)
    counters = [
        (CounterMetricFamily(f"fakecloud_target_{name}", text, labels=_TARGET), attribute)
        for name, text, attribute in _COUNTED
    ]
    for view in views:
        for one in view.status.targets:
            labels = (view.id, one.target, one.address or "", str(one.port))
            healthy.add_metric(labels, float("nan") if one.healthy is None else float(one.healthy))
            for metric, attribute in counters:
                metric.add_metric(labels, getattr(one, attribute))
    yield healthy
    yield from (metric for metric, _ in counters)
