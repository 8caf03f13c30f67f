"""The commands of `ccm-lb dataplane` that ask a cluster."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ccm_lb.errors import ApiError, ApiUnreachableError, ConfigError

if TYPE_CHECKING:
    from ccm_lb.kube.api import KubeApi

FINE, FINDINGS, CANNOT_TELL = 0, 1, 3

F = TypeVar("F", bound=Callable[..., Any])

_OUTPUT = click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Form of the output."
)


def _cluster(command: F) -> F:
    for option in (
        click.option("--kubeconfig", metavar="FILE", envvar="KUBECONFIG", help="The cluster; a pod's own by default."),
        click.option("--master", metavar="URL", help="In place of the kubeconfig's server."),
        _OUTPUT,
    ):
        command = option(command)
    return command


@click.command(short_help="What routes Services here, with evidence.")
@_cluster
def detect(kubeconfig: str | None, master: str | None, output: str) -> int:
    """Say what routes Services in the cluster, and by what that is known."""

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.cluster import detect as looking
        from ccm_lb.dataplane.model import Kind

        found = await looking.service_proxy(api)
        if output == "json":
            click.echo(json.dumps(found.as_json(), indent=2))
        else:
            click.echo(found.sentence() if found.kind is Kind.UNKNOWN else f"{found.sentence()}, {found.confidence}")
            for name, value in found.settings.items():
                click.echo(f"  {name}: {value}")
            for one in found.evidence:
                click.echo(f"  {one}")
        return CANNOT_TELL if found.kind is Kind.UNKNOWN else FINE

    return _ask(kubeconfig, master, ask)


@click.command(short_help="Which nodes can do without kube-proxy.")
@_cluster
def preflight(kubeconfig: str | None, master: str | None, output: str) -> int:
    """Say of every node whether it can run without kube-proxy (GKE on bare metal)."""

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.cluster import baremetal
        from ccm_lb.dataplane.cluster.detect import NODES

        machines = baremetal.preflight((await api.get(NODES)).get("items") or [])
        if output == "json":
            rows = [{**vars(one), "fitness": one.fitness.value} for one in machines]
            click.echo(json.dumps(rows, indent=2))
        else:
            for one in machines:
                system = ", ".join(filter(None, [one.os, one.kernel])) or "nothing said"
                click.echo(f"{one.node}: {one.fitness}: {one.reason} ({system})")
            if not machines:
                click.echo("cannot tell: there are no nodes")
        fitness = {one.fitness for one in machines}
        if baremetal.Fitness.UNFIT in fitness:
            return FINDINGS
        return FINE if fitness == {baremetal.Fitness.FITS} else CANNOT_TELL

    return _ask(kubeconfig, master, ask)


@click.command(short_help="Whether kube-proxy is really gone.")
@_cluster
def verify(kubeconfig: str | None, master: str | None, output: str) -> int:
    """Say whether kube-proxy is really gone and something is in its place (1: it is there, or nothing is)."""

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.cluster import baremetal
        from ccm_lb.dataplane.cluster import detect as looking
        from ccm_lb.dataplane.model import Kind

        found = baremetal.verify(await looking.observe(api))
        if output == "json":
            evidence = [{"source": one.source, "fact": one.fact} for one in found.evidence]
            row = {"kubeProxy": found.kube_proxy, "replacement": found.replacement, "reason": found.reason}
            click.echo(json.dumps({**row, "evidence": evidence}, indent=2))
        else:
            click.echo(f"kube-proxy: {found.kube_proxy}: {found.reason}")
            click.echo(f"in its place: {found.replacement}")
            for one in found.evidence:
                click.echo(f"  {one}")
        if found.kube_proxy is baremetal.Presence.CANNOT_TELL:
            return CANNOT_TELL
        if found.kube_proxy is baremetal.Presence.PRESENT or found.replacement is Kind.NONE:
            return FINDINGS
        return CANNOT_TELL if found.replacement is Kind.UNKNOWN else FINE

    return _ask(kubeconfig, master, ask)


# ---- a Service


@click.command(short_help="What the clients of a Service get, and why.")
@click.argument("service", metavar="NAMESPACE/NAME")
@click.option(
    "--delivery",
    type=click.Choice(["node-port", "pod", "address"]),
    default="node-port",
    help="What the load balancer sends to: a node's port, a pod, or the address itself.  [default: node-port]",
)
@_cluster
def explain(service: str, delivery: str, kubeconfig: str | None, master: str | None, output: str) -> int:
    """Say what each kind of client of a Service gets, and why (1: its ipMode is not what the cluster does)."""

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.clients import effect
        from ccm_lb.dataplane.cluster import detect as looking

        found = await _service(api, service)
        proxy = await looking.service_proxy(api)
        if not found.status.load_balancer.ingress:
            raise ConfigError(f"Service {service} publishes no address: nothing to explain yet")
        policy = effect.Policy(found.spec.external_traffic_policy or "Cluster")
        rows, warnings, told = [], [], True
        for ingress in found.status.load_balancer.ingress:
            outcomes = effect.outcomes(proxy, ingress, effect.Delivery(delivery), policy)
            told = told and all(one.path is not effect.Path.UNKNOWN for one in outcomes)
            warnings += list(filter(None, [effect.mismatch(proxy, ingress)]))
            rows += [(ingress, one) for one in outcomes]
        if output == "json":
            clients = [
                {"address": ingress.ip or ingress.hostname, "ipMode": ingress.ip_mode, **dataclasses.asdict(one)}
                for ingress, one in rows
            ]
            click.echo(json.dumps({"proxy": proxy.as_json(), "clients": clients, "warnings": warnings}, indent=2))
        else:
            click.echo(f"service proxy: {proxy.sentence()}")
            for ingress, one in rows:
                where = f"{ingress.ip or ingress.hostname} ({ingress.ip_mode or 'no ipMode'})"
                source = f" [{one.source}]" if one.source else ""
                click.echo(f"{where}, a client {_place(one.client)}: {one.path}: {one.reason}{source}")
            for warning in warnings:
                click.echo(f"warning: {warning}")
        broken = any(one.path is effect.Path.BROKEN for _, one in rows)
        return FINDINGS if warnings or broken else FINE if told else CANNOT_TELL

    return _ask(kubeconfig, master, ask)


def _place(client: str) -> str:
    return "outside" if client == "outside" else f"{'on' if client == 'node' else 'in'} a {client}"


@click.command(short_help="Measure, on a node, whether an address is short-cut.")
@click.argument("service", metavar="NAMESPACE/NAME")
@_cluster
def probe(service: str, kubeconfig: str | None, master: str | None, output: str) -> int:
    """Connect to a Service's address from here, a node, and read from the kernel whether it is short-cut.

    Deploys nothing, sends nothing. Reading the connection table takes root on a node (or a pod with its network).
    """

    async def ask(api: KubeApi) -> int:
        from ccm_lb.dataplane.clients import probe as probing
        from ccm_lb.dataplane.clients.conntrack import Answer

        found = await _service(api, service)
        ports = [one.port for one in found.spec.ports if one.protocol == "TCP"]
        addresses = [one.ip for one in found.status.load_balancer.ingress if one.ip is not None]
        if not addresses or not ports:
            raise ConfigError(f"Service {service}: no address with a TCP port to connect to")
        nodes = await _node_addresses(api)
        answers = [(one, await probing.probe(one, ports[0], nodes)) for one in addresses]
        if output == "json":
            rows = [{"address": one, "answer": seen.answer, "reason": seen.reason} for one, seen in answers]
            click.echo(json.dumps(rows, indent=2))
        else:
            for address, seen in answers:
                click.echo(f"{address}:{ports[0]}: {seen.answer}: {seen.reason}")
        return CANNOT_TELL if any(seen.answer is Answer.CANNOT_TELL for _, seen in answers) else FINE

    return _ask(kubeconfig, master, ask)


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


def _ask(kubeconfig: str | None, master: str | None, ask: Callable[[KubeApi], Coroutine[Any, Any, int]]) -> int:
    """Run `ask` with the cluster's API; what the cluster does not answer is "cannot tell"."""
    from importlib.metadata import version

    from ccm_lb.kube import connect

    async def run() -> int:
        api = await connect.connect(kubeconfig, master, user_agent=f"ccm-lb/{version('ccm-lb')}")
        try:
            return await ask(api)
        finally:
            await api.close()

    try:
        return asyncio.run(run())
    except (ApiError, ApiUnreachableError) as error:
        click.echo(f"ccm-lb: cannot tell: {' '.join(str(error).split())}", err=True)
        return CANNOT_TELL
