"""`fakecloud server`."""

from typing import TYPE_CHECKING

import click

from fakecloud.cli.client import connected
from fakecloud.cli.output import examples, output_option, say, show_list

if TYPE_CHECKING:
    from fakecloud.client import Client


@click.group()
def server() -> None:
    """Register the machines that load balancers forward to."""


@server.command("list", epilog=examples("fakecloud server list"))
@output_option
@connected
def list_(client: "Client", output: str) -> None:
    """List servers."""
    items = client.list_servers()
    rows = [(item.id, item.name, ", ".join(item.addresses)) for item in items]
    show_list(output, items, ["ID", "NAME", "ADDRESSES"], rows)


@server.command(epilog=examples("fakecloud server add node-1 127.0.0.11"))
@click.argument("server_id")
@click.argument("addresses", nargs=-1, required=True)
@click.option("--name", help="A name to read; the id when absent.")
@connected
def add(client: "Client", server_id: str, addresses: tuple[str, ...], name: str | None) -> None:
    """Register a server, or replace the one of the same id."""
    client.put_server(server_id, {"id": server_id, "name": name or server_id, "addresses": list(addresses)})
    say(f"registered {server_id}")


@server.command(epilog=examples("fakecloud server delete node-1"))
@click.argument("server_ids", nargs=-1, required=True)
@connected
def delete(client: "Client", server_ids: tuple[str, ...]) -> None:
    """Remove servers; where they are targets, those targets become unhealthy."""
    for server_id in server_ids:
        client.delete_server(server_id)
        say(f"deleted {server_id}")
