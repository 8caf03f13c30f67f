"""`fakecloud journal`."""

from typing import TYPE_CHECKING

import click

from fakecloud.cli.client import connected
from fakecloud.cli.output import examples, output_option, say, show_list

if TYPE_CHECKING:
    from fakecloud.client import Client


@click.group()
def journal() -> None:
    """Read what the API was asked, by whom, and what came of it."""


@journal.command(epilog=examples("fakecloud journal tail --mutating", "fakecloud journal tail -o json"))
@click.option("--since", type=click.IntRange(min=0), help="Begin after this number; without it, with new calls.")
@click.option("--mutating", is_flag=True, help="Only calls that can change something.")
@output_option
@connected
def tail(client: "Client", since: int | None, *, mutating: bool, output: str) -> None:
    """Show calls as they come, until Ctrl-C."""
    for call in client.tail_calls(since=since, mutating=mutating or None):
        if output == "json":
            click.echo(call.model_dump_json(by_alias=True))
        else:
            say(f"{call.seq}  {call.at}  {call.method} {call.path}  {call.status}  {call.outcome}")


@journal.command(epilog=examples("fakecloud journal counts", "fakecloud journal counts --since 120"))
@click.option("--since", type=click.IntRange(min=0), help="Only calls with a higher number.")
@output_option
@connected
def counts(client: "Client", since: int | None, output: str) -> None:
    """Count the calls of each kind."""
    items = client.count_calls(since=since)
    show_list(
        output,
        items,
        ["COUNT", "METHOD", "PATH", "STATUS", "OUTCOME"],
        [(str(one.count), one.method, one.path, str(one.status), one.outcome) for one in items],
    )


@journal.command(
    "list", epilog=examples("fakecloud journal list --mutating", "fakecloud journal list --since 120 -o json")
)
@click.option("--since", type=click.IntRange(min=0), help="Only calls with a higher number.")
@click.option("--method", type=click.Choice(["GET", "POST", "PUT", "PATCH", "DELETE"]), help="Only this method.")
@click.option("--mutating", is_flag=True, help="Only calls that can change something.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="At most so many.")
@output_option
@connected
def list_(client: "Client", since: int | None, method: str | None, *, mutating: bool, limit: int, output: str) -> None:
    """List calls, oldest first."""
    items = client.list_calls(since=since, method=method, mutating=mutating or None, limit=limit).items
    show_list(
        output,
        items,
        ["SEQ", "AT", "METHOD", "PATH", "STATUS", "OUTCOME", "OWNER", "USER AGENT"],
        [
            (
                str(call.seq),
                call.at,
                call.method,
                call.path,
                str(call.status),
                call.outcome,
                call.owner or "",
                call.user_agent or "",
            )
            for call in items
        ],
    )
