"""`ccm-lb explain`: what is decided for a Service and why, with everything that was looked at: its addresses, its nodes, the cloud."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from ccm_lb import annotations as ccm_annotations
from ccm_lb import ipmode
from ccm_lb.backends import registry
from ccm_lb.commands import cloud
from ccm_lb.commands import decisions as deciding
from ccm_lb.commands.cloud import Beside, beside
from ccm_lb.controller import addresses, desiredstatus, predicates
from ccm_lb.controller.capable import Capable
from ccm_lb.controller.desiredstatus import Circumstances
from ccm_lb.controller.predicates import Scope
from ccm_lb.dataplane.clients.ipmodehint import hint
from ccm_lb.dataplane.cluster import detect, kubeproxyversions
from ccm_lb.errors import CCMError, ForbiddenError, TerminalError
from ccm_lb.ipmode import Decision, Inputs, Traffic
from ccm_lb.kube.api import KubeApi
from ccm_lb.kube.cluster import NODES, Cluster, server_addresses
from ccm_lb.kube.connect import connect
from ccm_lb.objects import Key, LoadBalancerIngress, Node, Service, parse_node, parse_service
from ccm_lb.redaction import Secrets
from ccm_lb.settings.config import Config

_KUBE_PROXIES = "/api/v1/namespaces/kube-system/pods"


@dataclasses.dataclass(frozen=True)
class Address:
    """One address: what is decided, from which values, and what stands in the Service; "" for a Service that has none yet."""

    ip: str
    decision: Decision
    inputs: Inputs
    published: str

    def as_json(self) -> dict[str, Any]:
        """The keys are part of the command line's promise."""
        given, traffic = self.inputs, self.inputs.traffic
        return {
            "ip": self.ip or None,
            "ipMode": str(self.decision.mode),
            "published": self.published or None,
            "rule": self.decision.rule,
            "reason": self.decision.reason,
            "mixture": self.decision.mixture or None,
            "warnings": list(self.decision.warnings),
            "inputs": {
                "annotation": given.override,
                "delivery": traffic.delivery.value,
                "ports": [port._asdict() for port in traffic.ports],
                "scope": given.scope.value,
                "sourceRanges": given.source_ranges,
                "externalTrafficPolicyLocal": given.local_policy,
                "sourceRangesEnforced": traffic.enforces_source_ranges,
                "probesFromOwnAddress": traffic.probes_from_own_address,
                "probesToOwnAddress": traffic.probes_to_own_address,
                "providerDefault": given.default,
                "serviceProxy": given.service_proxy.value,
                "alsoAddressOf": given.taken or None,
            },
        }


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What is said of one Service. `refused` are addresses that are not published, `old_nodes` those that ignore ipMode."""

    service: str
    addresses: tuple[Address, ...]
    refused: tuple[str, ...] = ()
    old_nodes: tuple[str, ...] = ()
    unknown_nodes: int = 0
    decisions: tuple[deciding.Decision, ...] = ()
    nodes_in: tuple[str, ...] = ()
    nodes_out: Mapping[str, str] = dataclasses.field(default_factory=dict)  # by name, why
    cloud: Beside | None = None
    cloud_silent: str = ""  # why the cloud could not be asked; what it says of itself is missing then

    def as_json(self) -> dict[str, Any]:
        return {
            "service": self.service,
            "addresses": [one.as_json() for one in self.addresses],
            "refused": list(self.refused),
            "nodesThatIgnoreIPMode": list(self.old_nodes),
            "nodesOfUnknownVersion": self.unknown_nodes,
            "decisions": [one._asdict() for one in self.decisions],
            "nodes": {"in": list(self.nodes_in), "out": dict(self.nodes_out)},
            "cloud": self.cloud and self.cloud.as_json(),
            "cloudNotAsked": self.cloud_silent or None,
        }

    def lines(self) -> Iterable[str]:
        """The same for people."""
        if self.cloud_silent:
            yield f"warning: the cloud could not be asked, so the settings alone count: {self.cloud_silent}"
        for one in self.addresses:
            yield f"{self.service}: {one.ip or 'no address yet'}: ipMode {one.decision.mode}, because {one.decision.reason}"
            if one.published and one.published != one.decision.mode:
                yield f"  published: {one.published}"
            for sentence in filter(None, [one.decision.mixture]):
                yield f"  note: {sentence}"
            for warning in one.decision.warnings:
                yield f"  warning: {warning}"
            yield f"  row of the table: {_row(one.decision.rule)}"
            yield from _inputs(one.inputs)
        for reason in self.refused:
            yield f"  warning: {reason}"
        if self.old_nodes:
            yield f"  warning: kube-proxy is too old for ipMode on the nodes {', '.join(self.old_nodes)}"
        if self.unknown_nodes:
            yield f"  nodes whose kube-proxy's version is unknown: {self.unknown_nodes}"
        yield from self._of_the_load_balancer()

    def _of_the_load_balancer(self) -> Iterable[str]:
        for one in self.decisions:
            yield f"{one.question}: {one.answer}, because {one.reason}"
        if self.decisions:
            yield f"nodes that get traffic: {', '.join(self.nodes_in) or 'none'}"
        for name, reason in self.nodes_out.items():
            yield f"  left out: {name}, because {reason}"
        if self.cloud is None:
            return
        if self.cloud.silent:
            yield f"in the cloud: not compared: {self.cloud.silent}"
        elif not self.cloud.differences:
            yield "in the cloud: as it is wanted"
        else:
            yield f"in the cloud: {'; '.join(map(str, self.cloud.differences))}"


def explained(service: Service, around: Circumstances, versions: Mapping[str, str]) -> Explanation:
    """What is decided for the Service as it stands. Raises TerminalError for a wrong annotation."""
    published = service.status.load_balancer.ingress
    ips = tuple(one for one in published if one.ip)
    refused: tuple[str, ...] = ()
    try:
        _, notices = desiredstatus.fit(service, ips, around)
        refused = tuple(one.message for one in notices)
    except TerminalError as error:
        refused = (str(error),)
    override = ccm_annotations.ip_mode(service)
    found = []
    for entry in ips or (LoadBalancerIngress(ip=None),):
        given = desiredstatus.inputs(service, entry, around, override)
        found.append(Address(entry.ip or "", ipmode.decide(given), given, str(entry.ip_mode or "")))
    old = kubeproxyversions.ignoring(versions)
    unknown = sum(one == kubeproxyversions.UNKNOWN for one in versions.values())
    return Explanation(str(service.key), tuple(found), refused, old, unknown)


def _row(rule: str) -> str:
    number, row = next((number, row) for number, row in enumerate(ipmode.RULES, start=1) if row.name == rule)
    return f"{number}, {row.when}"


def _inputs(given: Inputs) -> Iterable[str]:
    traffic, yes = given.traffic, {True: "yes", False: "no", None: "unknown"}
    ports = ", ".join(f"{port} ({port.reason})" if port.reason else str(port) for port in traffic.ports)
    yield f"  annotation: {given.override or 'none'}"
    yield f"  delivery: {traffic.delivery}"
    yield f"  ports: {ports or 'unknown'}"
    yield f"  address: {given.scope}{f', also of {given.taken}' if given.taken else ''}"
    yield f"  source ranges: {yes[given.source_ranges]}; enforced by the cloud: {yes[traffic.enforces_source_ranges]}"
    yield f"  externalTrafficPolicy: {'Local' if given.local_policy else 'Cluster'}"
    yield f"  probes from the own address: {yes[traffic.probes_from_own_address]}; to it: {yes[traffic.probes_to_own_address]}"
    yield f"  provider's default: {given.default or 'none'}"
    yield f"  service proxy: {given.service_proxy}"


# ---- asking


async def explain(config: Config, key: Key, secrets: Secrets) -> Explanation:
    """
    Ask the cluster, and the cloud what it has. Raises CCMError, ConfigError for a wrong setting.

    A cloud that does not answer is no failure: the Service can be explained from the settings alone.
    """
    # A wrong setting is told before anybody is asked.
    registry.backend_config(registry.load(config.cloud_provider), config.cloud_config, secrets)
    api = await connect(config.kubeconfig, config.master, user_agent=f"ccm-lb/{version('ccm-lb')}", secrets=secrets)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(api.close)
        identity, unmarked = "explain", ""
        try:
            identity = await cloud.cluster_id(config, Cluster(api))
        except CCMError as error:
            unmarked = str(error)
        backend, silent = await stack.enter_async_context(cloud.opened(config, identity, secrets))
        found = await _explained(config, key, api, backend, unmarked or silent)
    return dataclasses.replace(found, cloud_silent=silent)


async def _explained(config: Config, key: Key, api: KubeApi, backend: Capable, silent: str) -> Explanation:
    service = parse_service(await Cluster(api).get_service(key))
    if service.spec.type != "LoadBalancer":
        raise CCMError(f"Service {key} is of type {service.spec.type}: only LoadBalancer has an ipMode")
    traffic: Traffic | None = backend.traffic(service)
    nodes = [parse_node(one) for one in (await api.get(NODES)).get("items") or ()]
    proxy, servers, pods = await asyncio.gather(
        detect.service_proxy(api), server_addresses(api.server), _kube_proxies(api)
    )
    around = Circumstances(
        traffic,
        owners(nodes, servers),
        frozenset(map(addresses.Kind, config.allow_addresses)),
        hint(proxy),
        backend.honours,
    )
    draining = traffic is not None and traffic.probes_ask_kube_proxy
    eligible = predicates.eligible_nodes(nodes, draining=draining)
    return dataclasses.replace(
        explained(service, around, kubeproxyversions.versions(nodes, pods)),
        decisions=tuple(
            deciding.decisions(service, Scope(frozenset(config.load_balancer_class), config.handle_unclassed))
        ),
        nodes_in=tuple(node.name for node in eligible),
        nodes_out={node.name: reason for node in nodes if (reason := predicates.left_out(node, draining=draining))},
        cloud=Beside(silent=silent) if silent else await beside(backend, service, eligible),
    )


def owners(nodes: Iterable[Node], api_server: tuple[str, ...]) -> addresses.Owners:
    """Whose addresses are taken."""
    return addresses.Owners({node.name: node.ips for node in nodes}, api_server)


async def _kube_proxies(api: KubeApi) -> list[dict[str, Any]]:
    """kube-proxy's pods; none if they may not be read."""
    try:
        pods: list[dict[str, Any]] = (await api.get(_KUBE_PROXIES, {"labelSelector": "k8s-app=kube-proxy"})).get(
            "items"
        ) or []
    except ForbiddenError:
        return []
    return pods
