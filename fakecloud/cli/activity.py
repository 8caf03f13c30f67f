"""`fakecloud action`, `fakecloud flow` and `fakecloud reset`: what happens in the cloud, and forgetting it."""

from typing import TYPE_CHECKING

import click

from fakecloud.cli.client import connected, load_balancer
from fakecloud.cli.failures import ConfigurationError
from fakecloud.cli.output import examples, output_option, say, show_list

if TYPE_CHECKING:
    from fakecloud.client import Client


@click.group()
def action() -> None:
    """Changes, and how far they have got."""


@action.command("list", epilog=examples("fakecloud action list", "fakecloud action list --status pending -o json"))
@click.option("--status", type=click.Choice(["pending", "running", "done", "error"]), help="Only those.")
@click.option("--resource", help="Only those of this load balancer, server or address, by its id.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="At most so many.")
@output_option
@connected
def list_actions(client: "Client", status: str | None, resource: str | None, limit: int, output: str) -> None:
    """List actions, newest first."""
    from fakecloud.models.actions import ActionStatus

    items = client.list_actions(resource=resource, status=None if status is None else ActionStatus(status), limit=limit)
    rows = [(item.id, item.status, item.kind, item.resource, item.created_at, item.error or "") for item in items]
    show_list(output, items, ["ID", "STATUS", "KIND", "RESOURCE", "CREATED", "ERROR"], rows)


@action.command("wait", epilog=examples("fakecloud action wait act-17"))
@click.argument("action_id")
@click.option("--timeout", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds.")
@connected
def wait_action(client: "Client", action_id: str, timeout: float) -> None:
    """Wait until an action is done; exit code 1 when it ends in an error, or takes longer than --timeout."""
    item = client.wait_for_action(action_id, timeout=timeout)
    say(f"{item.id} is {item.status}")


@click.group()
def flow() -> None:
    """Connections that have ended."""


@flow.command("list", epilog=examples("fakecloud flow list", "fakecloud flow list --load-balancer web -o json"))
@click.option("--load-balancer", "wanted", metavar="ID", help="Only those of this load balancer, by id or name.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="At most so many.")
@output_option
@connected
def list_flows(client: "Client", wanted: str | None, limit: int, output: str) -> None:
    """List connections, newest first."""
    known = None if wanted is None else load_balancer(client, wanted).id
    items = client.list_flows(load_balancer=known, limit=limit)
    rows = [
        (
            item.at,
            item.client,
            item.listener,
            item.target or "",
            item.ending,
            f"{item.bytes_in}/{item.bytes_out}",
            f"{item.seconds:.3f}",
        )
        for item in items
    ]
    show_list(output, items, ["AT", "CLIENT", "LISTENER", "TARGET", "ENDING", "IN/OUT", "SECONDS"], rows)


@click.command(epilog=examples("fakecloud reset", "fakecloud reset --only faults"))
@click.option(
    "--only", multiple=True, type=click.Choice(["state", "faults", "journal"]), help="Forget only this. Repeatable."
)
@connected
def reset(client: "Client", only: tuple[str, ...]) -> None:
    """Forget load balancers, servers and addresses, the faults, and the journal."""
    what = only or ("state", "faults", "journal")
    client.reset(state="state" in what, faults="faults" in what, journal="journal" in what)
    say(f"forgot {', '.join(what)}")


@click.command(
    epilog=examples(
        'eval "$(fakecloud completion bash)"', "fakecloud completion fish > ~/.config/fish/completions/fakecloud.fish"
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what makes SHELL complete the words of this program."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise ConfigurationError(f"completion {shell}: click does not know this shell")
    click.echo(kind(context.find_root().command, {}, "fakecloud", "_FAKECLOUD_COMPLETE").source())
