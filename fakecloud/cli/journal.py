"""`fakecloud journal`."""

import click

from fakecloud.cli.client import Client, connected
from fakecloud.cli.output import examples, output_option, show_json, show_table


@click.group()
def journal() -> None:
    """Read what the API was asked, by whom, and what came of it."""


@journal.command(
    "list", epilog=examples("fakecloud journal list --mutating", "fakecloud journal list --since 120 -o json")
)
@click.option("--since", type=click.IntRange(min=0), help="Only calls with a higher number.")
@click.option("--method", type=click.Choice(["GET", "POST", "PUT", "PATCH", "DELETE"]), help="Only this method.")
@click.option("--mutating", is_flag=True, help="Only calls that can change something.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="At most so many.")
@output_option
@connected
def list_(client: Client, since: int | None, method: str | None, *, mutating: bool, limit: int, output: str) -> None:
    """List calls, oldest first."""
    query = {"since": since, "method": method, "mutating": "true" if mutating else None, "limit": limit}
    answer = client.call("GET", "/v1/journal", query=query)
    if output == "json":
        show_json(answer["items"])
        return
    show_table(
        ["SEQ", "AT", "METHOD", "PATH", "STATUS", "OUTCOME", "OWNER", "USER AGENT"],
        [
            (
                str(call["seq"]),
                call["at"],
                call["method"],
                call["path"],
                str(call["status"]),
                call["outcome"],
                call["owner"] or "",
                call["userAgent"] or "",
            )
            for call in answer["items"]
        ],
    )
