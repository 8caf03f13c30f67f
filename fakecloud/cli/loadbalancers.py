"""`fakecloud lb`."""

import functools
import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fakecloud.cli.client import connected, load_balancer
from fakecloud.cli.failures import ConfigurationError
from fakecloud.cli.output import examples, output_option, readable, say, show_json, show_list, show_table

if TYPE_CHECKING:
    from fakecloud.client import Client
    from fakecloud.models.views import LoadBalancerView

Json = dict[str, Any]


@click.group()
def lb() -> None:
    """Make, change, watch and delete load balancers. ID is an id or a name."""


def _described(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say what a load balancer is; the command gets the fields that were given, as `fields`."""

    @click.option("--listen", "listen", multiple=True, metavar="PORT:TARGETPORT[/udp]", help="Open a port. Repeatable.")
    @click.option(
        "--target", "targets", multiple=True, metavar="SERVER|ADDRESS", help="Send traffic there. Repeatable."
    )
    @click.option(
        "--family", "families", multiple=True, type=click.Choice(["IPv4", "IPv6"]), help="Repeatable; IPv4 by default."
    )
    @click.option("--health", metavar="tcp|http[:PATH]|https[:PATH]", help="Probe the targets.")
    @click.option(
        "--range", "ranges", multiple=True, metavar="CIDR", help="Only these clients may connect. Repeatable."
    )
    @click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
    @click.option(
        "--algorithm",
        type=click.Choice(["round-robin", "least-connections", "source-hash"]),
        help="How targets are chosen.",
    )
    @click.option(
        "--file", "-f", "file", type=click.File("r"), help="The other fields, as the API's JSON; - is standard input."
    )
    @functools.wraps(command)
    def wrapped(*, file: Any, **arguments: Any) -> None:
        given: Json = {} if file is None else _read(file)
        listeners = [_listener(one) for one in arguments.pop("listen")]
        targets = [_target(one) for one in arguments.pop("targets")]
        health, tags = arguments.pop("health"), arguments.pop("tags")
        named = {
            "listeners": listeners,
            "targets": targets,
            "families": list(arguments.pop("families")),
            "healthCheck": None if health is None else _health(health),
            "sourceRanges": list(arguments.pop("ranges")),
            "tags": dict(_tag(one) for one in tags),
            "algorithm": arguments.pop("algorithm"),
        }
        command(fields=given | {name: value for name, value in named.items() if value}, **arguments)

    return wrapped


@lb.command(
    epilog=examples(
        "fakecloud lb create web --listen 8080:30080 --target node-1 --target node-2 --health tcp --wait",
        "fakecloud lb create dns --listen 5353:30053/udp --target 127.0.0.11 -o json",
        "fakecloud lb create web -f web.json",
    )
)
@click.argument("name")
@click.option("--owner", help="The owner's uid; the name when absent. An owner has one load balancer.")
@click.option("--cluster", default="fakecloud", show_default=True, help="The owner's cluster.")
@click.option("--address", "addresses", multiple=True, metavar="ADDRESS", help="Ask for this address. Repeatable.")
@click.option(
    "--wait", is_flag=True, help="Return when it is active and all its targets are healthy, at most after --timeout."
)
@click.option("--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds for --wait.")
@output_option
@connected
@_described
def create(
    client: "Client", fields: Json, output: str, *, name: str, wait: bool, timeout: float, **options: Any
) -> None:
    """Create a load balancer; the owner's that exists is shown unchanged."""
    owner = {"cluster": options["cluster"], "uid": options["owner"] or name}
    asked = {"addresses": list(options["addresses"])} if options["addresses"] else {}
    made = client.create_load_balancer({"owner": owner, **fields, **asked, "name": name})
    if wait:
        made = client.wait_for(made.id, healthy=len(made.targets), timeout=timeout)
    _show_one(made, output)


@lb.command(
    epilog=examples("fakecloud lb update web --target node-2", "echo '{\"tags\": {}}' | fakecloud lb update web -f -")
)
@click.argument("load_balancer_id", metavar="ID")
@click.option("--name", help="Another name.")
@output_option
@connected
@_described
def update(client: "Client", fields: Json, output: str, *, load_balancer_id: str, name: str | None) -> None:
    """Replace what is named, each as a whole; the rest stays. With -f a field can be emptied."""
    if name is not None:
        fields["name"] = name
    if not fields:
        raise ConfigurationError("lb update: nothing to change; name what should be another, see --help")
    _show_one(client.patch_load_balancer(load_balancer(client, load_balancer_id).id, fields), output)


@lb.command("list", epilog=examples("fakecloud lb list", "fakecloud lb list --cluster c1 -o json"))
@click.option("--owner", help="Only those of this owner uid.")
@click.option("--cluster", help="Only those of this cluster.")
@output_option
@connected
def list_(client: "Client", owner: str | None, cluster: str | None, output: str) -> None:
    """List load balancers."""
    items = client.list_load_balancers(owner=owner, cluster=cluster)
    show_list(
        output,
        items,
        ["ID", "NAME", "ADDRESS", "LISTENERS", "HEALTHY", "CONNECTIONS", "OWNER"],
        [
            (
                item.id,
                item.name,
                _addresses(item),
                ", ".join(f"{listener.port}→{listener.target_port}" for listener in item.listeners),
                _healthy(item),
                str(sum(listener.connections for listener in item.status.listeners)),
                f"{item.owner.cluster}/{item.owner.uid}" if item.owner else "",
            )
            for item in items
        ],
    )


@lb.command(epilog=examples("fakecloud lb show lb-0a1b2c3d4e", "fakecloud lb show web"))
@click.argument("load_balancer_id", metavar="ID")
@output_option
@connected
def show(client: "Client", load_balancer_id: str, output: str) -> None:
    """Show one load balancer: listeners, counters, and each target's health."""
    _show_one(load_balancer(client, load_balancer_id), output)


@lb.command(epilog=examples("fakecloud lb wait web --healthy 2", "fakecloud lb wait web --gone --timeout 5"))
@click.argument("load_balancer_id", metavar="ID")
@click.option("--healthy", type=click.IntRange(min=0), help="Wait for so many healthy targets too.")
@click.option("--gone", is_flag=True, help="Wait until there is none of this id.")
@click.option("--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds.")
@connected
def wait(client: "Client", load_balancer_id: str, healthy: int | None, timeout: float, *, gone: bool) -> None:
    """Wait until a load balancer is active; exit code 1 when that takes longer than --timeout."""
    if gone:
        client.wait_gone(load_balancer_id, timeout=timeout)
        say(f"{load_balancer_id} is gone")
        return
    item = client.wait_for(load_balancer(client, load_balancer_id).id, healthy=healthy, timeout=timeout)
    say(f"{item.id} is {item.state}, {_healthy(item)} healthy")


@lb.command(epilog=examples("fakecloud lb delete lb-0a1b2c3d4e", "fakecloud lb delete web"))
@click.argument("load_balancer_ids", nargs=-1, required=True, metavar="ID...")
@connected
def delete(client: "Client", load_balancer_ids: tuple[str, ...]) -> None:
    """Delete load balancers; their connections are cut."""
    for given in load_balancer_ids:
        found = load_balancer(client, given).id
        left = client.delete_load_balancer(found)
        say(f"deleting {found} by {left.action}" if left else f"deleted {found}")


def _show_one(item: "LoadBalancerView", output: str) -> None:
    if output == "json":
        show_json(item)
        return
    say(f"{item.id}  {item.name}  {_addresses(item)}  {item.state}  generation {item.generation}")
    show_table(
        ["PORT", "OPEN", "CONNECTIONS", "ACTIVE", "BYTES IN", "BYTES OUT", "ERROR"],
        [
            (
                str(listener.port),
                "yes" if listener.open else "no",
                str(listener.connections),
                str(listener.active_connections),
                str(listener.bytes_in),
                str(listener.bytes_out),
                listener.error or "",
            )
            for listener in item.status.listeners
        ],
    )
    show_table(
        ["TARGET", "ADDRESS", "PORT", "HEALTHY", "REASON"],
        [
            (
                target.target,
                target.address or "",
                str(target.port),
                {True: "yes", False: "no", None: "unknown"}[target.healthy],
                target.reason,
            )
            for target in item.status.targets
        ],
    )


def _read(file: Any) -> Json:
    name = "standard input" if file is sys.stdin else file.name
    try:
        content = json.load(file)
    except ValueError as error:
        raise ConfigurationError(readable(f"-f {name}: no JSON: {error}")) from error
    if not isinstance(content, dict):
        raise ConfigurationError(readable(f"-f {name}: expected an object, as POST /v1/load-balancers takes it"))
    return content


def _listener(text: str) -> Json:
    ports, _, protocol = text.partition("/")
    port, colon, target_port = ports.partition(":")
    if not (port.isdecimal() and (target_port or port).isdecimal()) or protocol.upper() not in ("", "TCP", "UDP"):
        raise ConfigurationError(f"--listen {text}: expected PORT:TARGETPORT or PORT:TARGETPORT/udp, e.g. 8080:30080")
    return {"port": int(port), "targetPort": int(target_port if colon else port), "protocol": protocol.upper() or "TCP"}


def _target(text: str) -> Mapping[str, str]:
    import ipaddress

    try:
        return {"address": str(ipaddress.ip_address(text))}
    except ValueError:
        return {"server": text}


def _health(text: str) -> Mapping[str, str]:
    protocol, _, path = text.partition(":")
    if protocol not in ("tcp", "http", "https"):
        raise ConfigurationError(f"--health {text}: expected tcp, http, http:/PATH, https or https:/PATH")
    return {"protocol": protocol, **({"path": path} if path else {})}


def _tag(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigurationError(f"--tag {text}: expected KEY=VALUE")
    return key, value


def _addresses(item: "LoadBalancerView") -> str:
    return ", ".join(assigned.address for assigned in item.addresses)


def _healthy(item: "LoadBalancerView") -> str:
    targets = item.status.targets
    return f"{sum(target.healthy is True for target in targets)}/{len(targets)}"
