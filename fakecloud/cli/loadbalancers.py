"""`fakecloud lb`."""

from typing import Any

import click

from fakecloud.cli.client import Client, connected, path_segment
from fakecloud.cli.output import examples, output_option, say, show_json, show_list, show_table

Json = dict[str, Any]


@click.group()
def lb() -> None:
    """Look at load balancers, and delete them."""


@lb.command("list", epilog=examples("fakecloud lb list", "fakecloud lb list --cluster c1 -o json"))
@click.option("--owner", help="Only those of this owner uid.")
@click.option("--cluster", help="Only those of this cluster.")
@output_option
@connected
def list_(client: Client, owner: str | None, cluster: str | None, output: str) -> None:
    """List load balancers."""
    items = list(client.pages("/v1/load-balancers", {"owner": owner, "cluster": cluster}))
    show_list(
        output,
        items,
        ["ID", "NAME", "ADDRESS", "LISTENERS", "HEALTHY", "CONNECTIONS", "OWNER"],
        [
            (
                item["id"],
                item["name"],
                _addresses(item),
                ", ".join(f"{listener['port']}→{listener['targetPort']}" for listener in item["listeners"]),
                _healthy(item),
                str(sum(listener["connections"] for listener in item["status"]["listeners"])),
                f"{item['owner']['cluster']}/{item['owner']['uid']}" if item["owner"] else "",
            )
            for item in items
        ],
    )


@lb.command(epilog=examples("fakecloud lb show lb-0a1b2c3d4e"))
@click.argument("load_balancer_id")
@output_option
@connected
def show(client: Client, load_balancer_id: str, output: str) -> None:
    """Show one load balancer: listeners, counters, and each target's health."""
    item = client.call("GET", f"/v1/load-balancers/{path_segment(load_balancer_id)}")
    if output == "json":
        show_json(item)
        return
    say(f"{item['id']}  {item['name']}  {_addresses(item)}  {item['state']}  generation {item['generation']}")
    show_table(
        ["PORT", "OPEN", "CONNECTIONS", "ACTIVE", "BYTES IN", "BYTES OUT", "ERROR"],
        [
            (
                str(listener["port"]),
                "yes" if listener["open"] else "no",
                str(listener["connections"]),
                str(listener["activeConnections"]),
                str(listener["bytesIn"]),
                str(listener["bytesOut"]),
                listener["error"] or "",
            )
            for listener in item["status"]["listeners"]
        ],
    )
    show_table(
        ["TARGET", "ADDRESS", "PORT", "HEALTHY", "REASON"],
        [
            (
                target["target"],
                target["address"] or "",
                str(target["port"]),
                {True: "yes", False: "no", None: "unknown"}[target["healthy"]],
                target["reason"],
            )
            for target in item["status"]["targets"]
        ],
    )


@lb.command(epilog=examples("fakecloud lb delete lb-0a1b2c3d4e"))
@click.argument("load_balancer_ids", nargs=-1, required=True)
@connected
def delete(client: Client, load_balancer_ids: tuple[str, ...]) -> None:
    """Delete load balancers; their connections are cut."""
    for load_balancer_id in load_balancer_ids:
        left = client.call("DELETE", f"/v1/load-balancers/{path_segment(load_balancer_id)}")
        say(f"deleting {load_balancer_id} by {left['action']}" if left else f"deleted {load_balancer_id}")


def _addresses(item: Json) -> str:
    return ", ".join(assigned["address"] for assigned in item["addresses"])


def _healthy(item: Json) -> str:
    targets = item["status"]["targets"]
    return f"{sum(target['healthy'] is True for target in targets)}/{len(targets)}"
