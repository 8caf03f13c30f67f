"""`fakecloud fault`."""

import json
import shlex
from typing import TYPE_CHECKING, Any

import click

from fakecloud.cli.client import connected
from fakecloud.cli.failures import ConfigurationError
from fakecloud.cli.output import examples, output_option, say, show_list

if TYPE_CHECKING:
    from fakecloud.client import Client
    from fakecloud.models.base import Model

Json = dict[str, Any]
# What says which calls or connections a fault meets; no effect has a setting of these names.
_MATCHED = ("methods", "path", "owner", "cluster", "loadBalancer", "address", "port", "target", "nth", "probability")


@click.group()
def fault() -> None:
    """Break the cloud on order: the API and the traffic."""


@fault.command(
    epilog=examples(
        "fakecloud fault add status status=503 retryAfterSeconds=1 --method POST --times 2",
        "fakecloud fault add reset when=after --method POST --path '/v1/load-balancers' --times 1",
        "fakecloud fault add latency seconds=0.1 toSeconds=2 distribution=uniform",
        "fakecloud fault add rate-limit requestsPerSecond=5 burst=10",
        "fakecloud fault add target-down --target node-1 --for 30",
        "fakecloud fault add silent --address 127.84.0.1",
    )
)
@click.argument("kind")
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--id", "fault_id", help="A name of one's own; a fault of this name is replaced.")
@click.option("--method", "methods", multiple=True, help="Only calls of this method. Repeatable.")
@click.option("--path", help="Only calls of this path; * is anything.")
@click.option("--owner", help="Only calls about load balancers of this owner uid.")
@click.option("--cluster", help="Only calls about load balancers of this cluster.")
@click.option("--nth", type=click.IntRange(min=1), help="Only the n-th call that matches.")
@click.option("--probability", type=click.FloatRange(0, 1), help="Only so often.")
@click.option("--load-balancer", help="Only connections to this load balancer.")
@click.option("--address", help="Only connections to this address.")
@click.option("--port", type=click.IntRange(1, 65535), help="Only connections to this port.")
@click.option("--target", help="For target-down: a server's id or an address.")
@click.option("--times", type=click.IntRange(min=1), help="So many times, then no more.")
@click.option("--for", "for_seconds", type=click.FloatRange(min=0, min_open=True), help="So many seconds.")
@connected
def add(client: "Client", kind: str, settings: tuple[str, ...], fault_id: str | None, **options: Any) -> None:
    """
    Order a fault of a KIND, with the settings of that kind.

    Calls: status, latency, hang, reset, stale-reads, stale-lists, action, token-expired, outage, rate-limit.
    Traffic: target-down, refuse, blackhole, slow, reset-after, half-open, silent.
    """
    named = {
        "methods": list(options["methods"]) or None,
        "path": options["path"],
        "owner": options["owner"],
        "cluster": options["cluster"],
        "nth": options["nth"],
        "probability": options["probability"],
        "loadBalancer": options["load_balancer"],
        "address": options["address"],
        "port": options["port"],
        "target": options["target"],
    }
    body: Json = {
        "id": fault_id,
        "match": {name: value for name, value in named.items() if value is not None},
        "effect": {"kind": kind} | dict(map(_setting, settings)),
        "times": options["times"],
        "forSeconds": options["for_seconds"],
    }
    say(f"added {client.add_fault(body).id}")


@fault.command("list", epilog=examples("fakecloud fault list"))
@output_option
@connected
def list_(client: "Client", output: str) -> None:
    """List the faults, and what each has met."""
    items = client.list_faults()
    show_list(
        output,
        items,
        ["ID", "ACTIVE", "APPLIED", "MATCHED", "EFFECT", "MATCH"],
        [
            (
                item.id or "",
                "yes" if item.active else "no",
                f"{item.applied}" + (f" of {item.times}" if item.times else ""),
                str(item.matched),
                _words(item.effect),
                _words(item.match),
            )
            for item in items
        ],
    )


@fault.command(epilog=examples("fakecloud fault remove fault-1", "fakecloud fault remove --all"))
@click.argument("fault_ids", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Remove all faults.")
@connected
def remove(client: "Client", fault_ids: tuple[str, ...], *, everything: bool) -> None:
    """Remove faults; what they hold back goes on."""
    if everything == bool(fault_ids):
        raise ConfigurationError("fault remove: give the ids of faults, or --all")
    if everything:
        client.remove_faults()
        say("removed all faults")
    for fault_id in fault_ids:
        client.remove_fault(fault_id)
        say(f"removed {fault_id}")


@fault.command(epilog=examples("fakecloud fault scenarios"))
@output_option
@connected
def scenarios(client: "Client", output: str) -> None:
    """List the scenarios of the file that `fakecloud serve --scenarios` read."""
    items = client.list_scenarios()
    rows = [(item.name, ", ".join(one.effect.kind for one in item.faults), item.description) for item in items]
    show_list(output, items, ["NAME", "FAULTS", "DESCRIPTION"], rows)


@fault.command(epilog=examples("fakecloud fault apply flaky"))
@click.argument("name")
@connected
def apply(client: "Client", name: str) -> None:
    """Order all faults of a scenario."""
    for item in client.apply_scenario(name):
        say(f"added {item.id}")


def written(text: str) -> Json:
    """A whole fault in one text: `status status=503 times=2 path=/v1/servers`, or the API's own JSON. Raises ConfigurationError."""
    if text.lstrip().startswith("{"):
        try:
            body: Json = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"--fault {text}: no JSON: {error}") from error
        return body
    kind, *settings = shlex.split(text) or [""]
    if not kind or "=" in kind:
        raise ConfigurationError(f"--fault '{text}': expected 'KIND [NAME=VALUE]...', e.g. 'status status=503 times=2'")
    named = dict(map(_setting, settings))
    if isinstance(named.get("methods"), str):
        named["methods"] = named["methods"].split(",")
    own: Json = {name: named.pop(name) for name in ("id", "times", "forSeconds") if name in named}
    match = {name: named.pop(name) for name in _MATCHED if name in named}
    return {**own, "match": match, "effect": {"kind": kind, **named}}


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigurationError(f"fault add: {text}: expected NAME=VALUE, e.g. status=503")
    try:
        return name, json.loads(value)
    except ValueError:
        # A word need not be written as JSON.
        return name, value


def _words(model: "Model") -> str:
    item = model.model_dump(mode="json", by_alias=True)
    shown = (item["kind"],) if "kind" in item else ()
    others = (
        f"{name}={','.join(value) if isinstance(value, list) else value}"
        for name, value in item.items()
        if value not in (None, [], "") and name != "kind"
    )
    return " ".join([*shown, *others])
