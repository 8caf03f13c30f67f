"""`fakecloud pool` and `fakecloud address`: where load balancers get their addresses."""

from typing import TYPE_CHECKING, Any

import click

from fakecloud.cli.client import connected
from fakecloud.cli.output import examples, output_option, say, show_list

if TYPE_CHECKING:
    from fakecloud.client import Client


@click.group()
def pool() -> None:
    """The networks that load balancers get addresses from."""


@pool.command("list", epilog=examples("fakecloud pool list"))
@output_option
@connected
def list_pools(client: "Client", output: str) -> None:
    """List pools, and how much of each is used."""
    items = client.list_address_pools()
    rows = [(item.name, item.cidr, item.family, f"{item.allocated} of {item.size}") for item in items]
    show_list(output, items, ["NAME", "CIDR", "FAMILY", "ALLOCATED"], rows)


@pool.command("add", epilog=examples("fakecloud pool add blue 127.90.0.0/24"))
@click.argument("name")
@click.argument("cidr")
@connected
def add_pool(client: "Client", name: str, cidr: str) -> None:
    """Add a pool."""
    client.add_address_pool({"name": name, "cidr": cidr})
    say(f"added {name}")


@pool.command("delete", epilog=examples("fakecloud pool delete blue"))
@click.argument("names", nargs=-1, required=True)
@connected
def delete_pools(client: "Client", names: tuple[str, ...]) -> None:
    """Remove pools that give out no address."""
    for name in names:
        client.delete_address_pool(name)
        say(f"deleted {name}")


@click.group()
def address() -> None:
    """Addresses that stay yours while load balancers come and go."""


@address.command("list", epilog=examples("fakecloud address list"))
@output_option
@connected
def list_addresses(client: "Client", output: str) -> None:
    """List reserved addresses, and who uses them."""
    items = client.list_addresses()
    rows = [(item.name, item.address, item.load_balancer or "") for item in items]
    show_list(output, items, ["NAME", "ADDRESS", "LOAD BALANCER"], rows)


@address.command(
    epilog=examples("fakecloud address reserve shop", "fakecloud address reserve shop --address 127.84.0.9")
)
@click.argument("name")
@click.option("--family", type=click.Choice(["IPv4", "IPv6"]), default="IPv4", show_default=True)
@click.option("--address", "wanted", help="A certain one; the lowest that is free when absent.")
@connected
def reserve(client: "Client", name: str, family: str, wanted: str | None) -> None:
    """Keep an address for load balancers that ask for it."""
    fields: dict[str, Any] = {"name": name, "family": family} | ({} if wanted is None else {"address": wanted})
    say(f"reserved {client.reserve_address(fields).address} as {name}")


@address.command(epilog=examples("fakecloud address release shop"))
@click.argument("names", nargs=-1, required=True)
@connected
def release(client: "Client", names: tuple[str, ...]) -> None:
    """Give reserved addresses back; a load balancer that uses one keeps it."""
    for name in names:
        client.release_address(name)
        say(f"released {name}")
