"""The commands of `ccm-lb dataplane` that ask a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ccm_lb.commands import outputs
from ccm_lb.commands.outputs import BAD_INPUT, CANNOT_TELL, FINDINGS, FINE
from ccm_lb.errors import ApiError, ApiUnreachableError, ConfigError

if TYPE_CHECKING:
    from ccm_lb.dataplane.clients.effect import Outcome
    from ccm_lb.dataplane.clients.endpoints import Spread
    from ccm_lb.kube.api import KubeApi
    from ccm_lb.objects import LoadBalancerIngress, Service


F = TypeVar("F", bound=Callable[..., Any])


def _cluster(command: F) -> F:
    for option in (
        click.option("--kubeconfig", metavar="FILE", envvar="KUBECONFIG", help="The cluster; a pod's own by default."),
        click.option("--master", metavar="URL", help="In place of the kubeconfig's server."),
        outputs.OPTION,
    ):
        command = option(command)
    return command


@click.command(
    short_help="What routes Services here, with evidence.",
    epilog=outputs.exit_codes(
        {
            0: "it is known what does, and in which mode",
            2: "bad input, such as a kubeconfig that is none",
            3: "it cannot be told: the service proxy, or kube-proxy's mode, is unknown, or the cluster does not answer",
        }
    ),
)
@_cluster
def detect(kubeconfig: str | None, master: str | None, output: str) -> int:
    """Say what routes Services in the cluster, which load balancers live in it, and by what that is known."""

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.cluster import announcers, infer
        from ccm_lb.dataplane.cluster import detect as looking
        from ccm_lb.dataplane.model import Kind, Mode

        seen = await looking.observe(api)
        found, balancers = infer.service_proxy(seen), announcers.find(seen)
        if output == "json":
            outputs.say(
                json.dumps({**found.as_json(), "loadBalancers": [one.as_json() for one in balancers]}, indent=2)
            )
        else:
            outputs.say(found.sentence() if found.kind is Kind.UNKNOWN else f"{found.sentence()}, {found.confidence}")
            for name, value in found.settings.items():
                outputs.say(f"  {name}: {value}")
            for one in found.evidence:
                outputs.say(f"  {one}")
        return CANNOT_TELL if found.kind is Kind.UNKNOWN or found.mode is Mode.UNKNOWN else FINE

    return _ask(kubeconfig, master, output, ask)


@click.command(
    short_help="Which nodes can do without kube-proxy.",
    epilog=outputs.exit_codes(
        {
            0: "all of them can",
            1: "one cannot",
            2: "bad input, such as a kubeconfig that is none",
            3: "of one it cannot be told, there are no nodes, or the cluster does not answer",
        }
    ),
)
@_cluster
def preflight(kubeconfig: str | None, master: str | None, output: str) -> int:
    """Say of every node whether it can run without kube-proxy (GKE on bare metal)."""

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.cluster import baremetal
        from ccm_lb.dataplane.cluster.detect import NODES

        machines = baremetal.preflight((await api.get(NODES)).get("items") or [])
        if output == "json":
            rows = [{**vars(one), "fitness": one.fitness.value} for one in machines]
            outputs.say(json.dumps(rows, indent=2))
        else:
            for one in machines:
                system = ", ".join(filter(None, [one.os, one.kernel])) or "nothing said"
                outputs.say(f"{one.node}: {one.fitness}: {one.reason} ({system})")
            if not machines:
                outputs.say("cannot tell: there are no nodes")
        fitness = {one.fitness for one in machines}
        if baremetal.Fitness.UNFIT in fitness:
            return FINDINGS
        return FINE if fitness == {baremetal.Fitness.FITS} else CANNOT_TELL

    return _ask(kubeconfig, master, output, ask)


@click.command(
    short_help="Whether kube-proxy is really gone.",
    epilog=outputs.exit_codes(
        {
            0: "it is gone, and something is in its place",
            1: "it is there, or nothing is in its place",
            2: "bad input, such as a kubeconfig that is none",
            3: "it cannot be told, or the cluster does not answer",
        }
    ),
)
@_cluster
def verify(kubeconfig: str | None, master: str | None, output: str) -> int:
    """Say whether kube-proxy is really gone and something is in its place."""

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.cluster import baremetal
        from ccm_lb.dataplane.cluster import detect as looking
        from ccm_lb.dataplane.model import Kind

        found = baremetal.verify(await looking.observe(api))
        if output == "json":
            evidence = [{"source": one.source, "fact": one.fact} for one in found.evidence]
            row = {"kubeProxy": found.kube_proxy, "replacement": found.replacement, "reason": found.reason}
            outputs.say(json.dumps({**row, "evidence": evidence}, indent=2))
        else:
            outputs.say(f"kube-proxy: {found.kube_proxy}: {found.reason}")
            outputs.say(f"in its place: {found.replacement}")
            for one in found.evidence:
                outputs.say(f"  {one}")
        if found.kube_proxy is baremetal.Presence.CANNOT_TELL:
            return CANNOT_TELL
        if found.kube_proxy is baremetal.Presence.PRESENT or found.replacement is Kind.NONE:
            return FINDINGS
        return CANNOT_TELL if found.replacement is Kind.UNKNOWN else FINE

    return _ask(kubeconfig, master, output, ask)


# ---- a Service


@click.command(
    short_help="What the clients of a Service get, and why.",
    epilog=outputs.exit_codes(
        {
            0: "every client is served, and as its ipMode says",
            1: "some get no answer, or the ipMode is not what the cluster does",
            2: "no such Service, or it publishes no address",
            3: "of some clients it cannot be told",
        }
    ),
)
@click.argument("service", metavar="NAMESPACE/NAME")
@click.option(
    "--delivery",
    type=click.Choice(["node-port", "pod", "address"]),
    help="What the load balancer sends to: a node's port, a pod, or the address itself.  "
    "[default: what the load balancer that `detect` finds for it does; else node-port]",
)
@_cluster
def explain(service: str, delivery: str | None, kubeconfig: str | None, master: str | None, output: str) -> int:
    """Say what each kind of client of a Service gets, and why."""

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.clients import effect
        from ccm_lb.dataplane.cluster import announcers, infer
        from ccm_lb.dataplane.cluster import detect as looking
        from ccm_lb.dataplane.model import Delivery

        found = await _service(api, service)
        if not found.status.load_balancer.ingress:
            raise ConfigError(f"Service {service} publishes no address: nothing to explain yet")
        seen = await looking.observe(api)
        proxy, serving = infer.service_proxy(seen), announcers.serving(found, announcers.find(seen))
        spread = await _spread(api, found)
        chosen = Delivery(delivery) if delivery else serving.delivery or Delivery.NODE_PORT
        by = "as told" if delivery else serving.reason if serving.delivery else f"assumed: {serving.reason}"
        spec = effect.Spec(
            effect.Policy.LOCAL if found.spec.external_traffic_policy == "Local" else effect.Policy.CLUSTER,
            affinity=found.spec.session_affinity == "ClientIP",
            source_ranges=bool(found.spec.load_balancer_source_ranges),
        )
        rows: list[tuple[LoadBalancerIngress, Outcome, tuple[str, ...] | None]] = []
        warnings: list[str] = []
        for ingress in found.status.load_balancer.ingress:
            warnings += filter(None, [effect.mismatch(proxy, ingress)])
            outcomes = effect.outcomes(proxy, ingress, chosen, spec)
            rows += [(ingress, one, _nodes(one, spread)) for one in outcomes]
        notes = [] if spread is None or spread.ready else ["no ready endpoint: whatever the way, nobody answers"]
        if output == "json":
            clients = [
                {
                    "address": ingress.ip or ingress.hostname,
                    "ipMode": ingress.ip_mode,
                    **dataclasses.asdict(one),
                    "nodes": None if nodes is None else list(nodes),
                }
                for ingress, one, nodes in rows
            ]
            said = {
                "proxy": proxy.as_json(),
                "delivery": {"to": chosen.value, "reason": by},
                "clients": clients,
                "warnings": warnings,
                "notes": notes,
            }
            outputs.say(json.dumps(said, indent=2))
        else:
            outputs.say(f"service proxy: {proxy.sentence()}")
            outputs.say(f"the load balancer delivers to: {_DELIVERIES[chosen]} ({by})")
            for ingress, one, nodes in rows:
                where = f"{ingress.ip or ingress.hostname} ({ingress.ip_mode or 'no ipMode'})"
                source = f" [{one.source}]" if one.source else ""
                outputs.say(f"{where}, a client {_place(one, nodes)}: {one.path}: {one.reason}{source}")
            for word, sentences in (("warning", warnings), ("note", notes)):
                for sentence in sentences:
                    outputs.say(f"{word}: {sentence}")
        # A row that is true of no node today is told, and is no finding.
        paths = {one.path for _, one, nodes in rows if nodes != ()}
        if warnings or effect.Path.BROKEN in paths:
            return FINDINGS
        return CANNOT_TELL if effect.Path.UNKNOWN in paths else FINE

    return _ask(kubeconfig, master, output, ask)


_DELIVERIES = {"node-port": "a node's port", "pod": "a pod", "address": "the address itself"}
_MANY = 5


def _place(one: Outcome, nodes: tuple[str, ...] | None) -> str:
    if one.client == "outside":
        return "outside"
    if one.endpoints is None:
        return "on a node" if one.client == "node" else "in a pod"
    place = "on a node" if one.client == "node" else "in a pod on a node"
    if nodes is None:
        return f"{place} {one.endpoints}"
    more = f" and {len(nodes) - _MANY} more" if len(nodes) > _MANY else ""
    return f"{place} {one.endpoints} ({', '.join(nodes[:_MANY]) + more if nodes else 'none at present'})"


def _nodes(one: Outcome, spread: Spread | None) -> tuple[str, ...] | None:
    """The nodes that an outcome is about; None where it is about no node in particular, or they are not known."""
    return None if spread is None or one.endpoints is None else spread.nodes(one.endpoints)


async def _spread(api: KubeApi, service: Service) -> Spread | None:
    """On which nodes it has pods; None where that may not be looked at."""
    from ccm_lb.dataplane.clients import endpoints
    from ccm_lb.dataplane.cluster.detect import NODES

    path = f"/apis/discovery.k8s.io/v1/namespaces/{service.key.namespace}/endpointslices"
    selector = {"labelSelector": f"kubernetes.io/service-name={service.key.name}"}
    try:
        slices = (await api.get(path, selector)).get("items") or ()
        nodes = (await api.get(NODES)).get("items") or ()
    except ApiError:
        return None
    return endpoints.spread(slices, [str(one["metadata"]["name"]) for one in nodes])


@click.command(
    short_help="Measure, on a node, whether an address is short-cut.",
    epilog=outputs.exit_codes(
        {
            0: "each address is short-cut or not as its ipMode says",
            1: "an address is short-cut although its ipMode is Proxy, or not although it is VIP",
            2: "no such Service, or no address with a TCP port to connect to",
            3: "of an address it cannot be told, or the cluster does not answer",
        }
    ),
)
@click.argument("service", metavar="NAMESPACE/NAME")
@_cluster
def probe(service: str, kubeconfig: str | None, master: str | None, output: str) -> int:
    """Connect to a Service's address from here, a node, and read from the kernel whether it is short-cut.

    Deploys nothing, sends nothing. Reading the connection table takes root on a node (or a pod with its network).
    """

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.clients import probe as probing
        from ccm_lb.dataplane.clients.conntrack import Answer, contradicts

        found = await _service(api, service)
        ports = [one.port for one in found.spec.ports if one.protocol == "TCP"]
        modes = {one.ip: one.ip_mode for one in found.status.load_balancer.ingress if one.ip is not None}
        addresses = list(modes)
        if not addresses or not ports:
            raise ConfigError(f"Service {service}: no address with a TCP port to connect to")
        nodes = await _node_addresses(api)
        answers = [(one, await probing.probe(one, ports[0], nodes)) for one in addresses]
        if output == "json":
            rows = [
                {
                    "address": one,
                    "answer": seen.answer,
                    "reason": seen.reason,
                    "ipMode": modes[one],
                    "contradiction": contradicts(modes[one], seen.answer),
                }
                for one, seen in answers
            ]
            outputs.say(json.dumps(rows, indent=2))
        else:
            for address, seen in answers:
                outputs.say(f"{address}:{ports[0]}: {seen.answer}: {seen.reason}")
                if contradicts(modes[address], seen.answer):
                    outputs.say(
                        f"warning: its ipMode is {modes[address] or 'not set, which means VIP'}, which says otherwise"
                    )
        if any(contradicts(modes[one], seen.answer) for one, seen in answers):
            return FINDINGS
        return CANNOT_TELL if any(seen.answer is Answer.CANNOT_TELL for _, seen in answers) else FINE

    return _ask(kubeconfig, master, output, ask)


async def _service(api: KubeApi, text: str) -> Any:
    from ccm_lb import objects

    namespace, slash, name = text.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise ConfigError(f"{text!r}: expected NAMESPACE/NAME of a Service")
    try:
        return objects.parse_service(await api.get(f"/api/v1/namespaces/{namespace}/services/{name}"))
    except ApiError as error:
        if error.status == 404:
            raise ConfigError(f"there is no Service {text}") from error
        raise


async def _node_addresses(api: KubeApi) -> list[str] | None:
    from ccm_lb.dataplane.cluster.detect import NODES

    try:
        nodes = (await api.get(NODES)).get("items") or ()
    except ApiError:
        return None
    return [str(one["address"]) for node in nodes for one in node.get("status", {}).get("addresses") or ()]


def _ask(
    kubeconfig: str | None, master: str | None, output: str, ask: Callable[[KubeApi], Coroutine[Any, Any, int]]
) -> int:
    """Run `ask` with the cluster's API; what the cluster does not answer is "cannot tell"."""
    from importlib.metadata import version

    from ccm_lb.kube import connect

    async def run() -> int:
        api = await connect.connect(
            kubeconfig, master, user_agent=f"ccm-lb/{version('ccm-lb')}", secrets=outputs.secrets()
        )
        try:
            return await ask(api)
        finally:
            await api.close()

    try:
        return asyncio.run(run())
    except (ApiError, ApiUnreachableError) as error:
        return outputs.complain(f"cannot tell: {' '.join(str(error).split())}", CANNOT_TELL, output)
    except ConfigError as error:
        return outputs.complain(str(error), BAD_INPUT, output)
