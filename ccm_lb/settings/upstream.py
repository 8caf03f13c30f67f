"""
The flags of upstream's cloud-controller-manager that have nothing to do here, and why.

Whoever swaps the binary keeps its command line: such a flag is accepted, and said in one line of the log to have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ccm_lb.errors import ConfigError

_SERVING = "health and metrics are served to everybody who reaches the port, over HTTP, and over HTTPS with a certificate from files"
_TLS = "Python's defaults for TLS servers are used"
_NODES = "there is no controller of nodes here, only that of Services"
_ROUTES = "there is no controller of routes here, only that of Services"
_WEBHOOKS = "no webhook is served"
_PROFILING = "there is no profiler of Go programs here"
_MIGRATION = "there is one controller and one Lease, so nothing to migrate between"
_LOG = "the log goes to stderr, line by line"
_CLOUD = "a backend takes its settings from --cloud-config"

NO_EFFECT: Mapping[str, str] = {
    "allocate-node-cidrs": _ROUTES,
    "allow-untagged-cloud": "load balancers are found by their owner, the cluster and the Service's UID",
    "alsologtostderr": _LOG,
    "authentication-kubeconfig": _SERVING,
    "authentication-skip-lookup": _SERVING,
    "authentication-token-webhook-cache-ttl": _SERVING,
    "authentication-tolerate-lookup-failure": _SERVING,
    "authorization-always-allow-paths": _SERVING,
    "authorization-kubeconfig": _SERVING,
    "authorization-webhook-cache-authorized-ttl": _SERVING,
    "authorization-webhook-cache-unauthorized-ttl": _SERVING,
    "cert-dir": _SERVING,
    "cidr-allocator-type": _ROUTES,
    "client-ca-file": _SERVING,
    "cluster-cidr": _ROUTES,
    "concurrent-node-lifecycle-syncs": _NODES,
    "concurrent-node-status-updates": _NODES,
    "concurrent-node-syncs": _NODES,
    "configure-cloud-routes": _ROUTES,
    "contention-profiling": _PROFILING,
    "controller-start-interval": "there is one controller, so nothing to wait for in between",
    "disable-http2-serving": "health and metrics are served over HTTP/1.1 anyway",
    "enable-leader-migration": _MIGRATION,
    "external-cloud-volume-plugin": "volumes are other components' work",
    "feature-gates": "nothing here depends on a feature gate",
    "http2-max-streams-per-connection": "health and metrics are served over HTTP/1.1",
    "kube-api-content-type": "the API is spoken to in JSON",
    "leader-migration-config": _MIGRATION,
    "log-dir": _LOG,
    "log-flush-frequency": _LOG,
    "log-text-info-buffer-size": _LOG,
    "log-text-split-stream": _LOG,
    "logtostderr": _LOG,
    "min-resync-period": "see --resync-period",
    "node-monitor-period": _NODES,
    "node-status-update-frequency": _NODES,
    "permit-address-sharing": "the port is taken by one process",
    "permit-port-sharing": "the port is taken by one process",
    "profiling": _PROFILING,
    "requestheader-allowed-names": _SERVING,
    "requestheader-client-ca-file": _SERVING,
    "requestheader-extra-headers-prefix": _SERVING,
    "requestheader-group-headers": _SERVING,
    "requestheader-uid-headers": _SERVING,
    "requestheader-username-headers": _SERVING,
    "route-reconciliation-period": _ROUTES,
    "stderrthreshold": _LOG,
    "tls-cipher-suites": _TLS,
    "tls-curve-preferences": _TLS,
    "tls-min-version": _TLS,
    "tls-sni-cert-key": "one certificate is served, that of --tls-cert-file",
    "use-service-account-credentials": "the one controller here has the process's own credentials",
    "user-agent": _CLOUD,
    "vmodule": "see -v",
    "webhook-bind-address": _WEBHOOKS,
    "webhook-cert-dir": _WEBHOOKS,
    "webhook-disable-http2-serving": _WEBHOOKS,
    "webhook-secure-port": _WEBHOOKS,
    "webhook-tls-cert-file": _WEBHOOKS,
    "webhook-tls-cipher-suites": _WEBHOOKS,
    "webhook-tls-curve-preferences": _WEBHOOKS,
    "webhook-tls-min-version": _WEBHOOKS,
    "webhook-tls-private-key-file": _WEBHOOKS,
    "webhook-tls-sni-cert-key": _WEBHOOKS,
    "webhooks": _WEBHOOKS,
}
"""Flags by their names without dashes, and why each has no effect."""

SWITCHES = frozenset(
    {
        "allocate-node-cidrs",
        "allow-untagged-cloud",
        "alsologtostderr",
        "authentication-skip-lookup",
        "authentication-tolerate-lookup-failure",
        "configure-cloud-routes",
        "contention-profiling",
        "disable-http2-serving",
        "enable-leader-migration",
        "log-text-split-stream",
        "logtostderr",
        "permit-address-sharing",
        "permit-port-sharing",
        "profiling",
        "use-service-account-credentials",
        "webhook-disable-http2-serving",
    }
)
"""Those that may stand without a value."""

CONTROLLERS = "controllers"
"""The flag that is honoured as far as there is something to choose."""

_OURS = frozenset({"service-lb-controller", "service"})  # upstream's name for it, and the older one


def notes(given: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """
    A sentence for each flag of upstream's that was given, by name with its values, and has no effect.

    Raises ConfigError: --controllers leaves out the only one that is here.
    """
    for name, values in given.items():
        if name != CONTROLLERS:
            yield f"--{name} has no effect: {NO_EFFECT[name]}"
            continue
        chosen = [one.strip() for value in values for one in value.split(",")]
        if not _runs(chosen):
            raise ConfigError(
                f"--controllers: got {','.join(chosen)!r}, which leaves out service-lb-controller, the only one here; "
                "expected it or * among them"
            )
        others = [one for one in chosen if one.removeprefix("-") not in _OURS and one != "*"]
        if others:
            yield f"--controllers names {', '.join(others)}: not here, only service-lb-controller is"


def _runs(chosen: Sequence[str]) -> bool:
    if any(f"-{name}" in chosen for name in _OURS):
        return False
    return "*" in chosen or any(name in chosen for name in _OURS)
