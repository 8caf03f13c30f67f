"""`fakecloud verify`: what a pipeline asks at its end."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from fakecloud.cli.client import connected
from fakecloud.cli.failures import ConfigurationError
from fakecloud.cli.output import examples, output_option, readable, say, show_json

if TYPE_CHECKING:
    from fakecloud.client import Client
    from fakecloud.models.journal import Verification

_SHOWN = 5
_UNITS = {"s": 1, "m": 60, "h": 3600}


@click.command(
    epilog=examples(
        "fakecloud verify --no-mutations",
        "fakecloud verify --no-mutations --since 120",
        "fakecloud verify --no-mutations --since 5m --owner 7d9a0f4e-0a5c-4a2c-9a51-6f0f7a0a1f10",
        "fakecloud verify --method POST --path /v1/load-balancers --applied --exactly 1",
    )
)
@click.option("--no-mutations", is_flag=True, help="Nothing was changed: the same as --applied --exactly 0.")
@click.option("--since", help="Only calls after this number, this time (RFC 3339, UTC), or so long ago (30s, 5m, 1h).")
@click.option("--method", help="Count calls of this method.")
@click.option("--path", help="Count calls of this path; * is anything.")
@click.option("--owner", help="Count calls about load balancers of this owner uid.")
@click.option("--cluster", help="Count calls about load balancers of this cluster.")
@click.option("--user-agent", help="Count calls of this user agent; * is anything.")
@click.option("--status", type=click.IntRange(0, 599), help="Count calls that were answered so; 0: not at all.")
@click.option("--applied", is_flag=True, help="Count calls that changed something.")
@click.option("--mutating", is_flag=True, help="Count calls that may change something, whatever came of them.")
@click.option("--exactly", type=click.IntRange(min=0), help="Expect so many.")
@click.option("--at-least", type=click.IntRange(min=0), help="Expect so many or more.")
@click.option("--at-most", type=click.IntRange(min=0), help="Expect so many or fewer.")
@output_option
@connected
def verify(client: "Client", output: str, *, no_mutations: bool, since: str | None, **options: Any) -> None:
    """
    Check what the API was asked: exit code 0 when it is as expected, 1 when it is not, 2 when that can't be told.

    Without a number to expect, no call may match.
    """
    from fakecloud.client import FakecloudError, UnauthorizedError

    wanted = {
        "method": options["method"],
        "path": options["path"],
        "owner": options["owner"],
        "cluster": options["cluster"],
        "user_agent": options["user_agent"],
        "status": options["status"],
        "applied": True if options["applied"] or no_mutations else None,
        "mutating": True if options["mutating"] else None,
        **_since(since),
    }
    bounds = {name: options[name] for name in ("exactly", "at_least", "at_most")}
    if no_mutations and any(bound is not None for bound in bounds.values()):
        raise ConfigurationError("verify: --no-mutations expects 0 calls; leave the other numbers away")
    try:
        verdict = client.verify_calls(**bounds, **wanted)
    except UnauthorizedError:
        raise
    except FakecloudError as error:
        # Unreachable, or a question that was refused: neither yes nor no.
        raise ConfigurationError(readable(str(error))) from error
    if output == "json":
        show_json(verdict)
    else:
        _tell(verdict)
    if not verdict.complete:
        raise ConfigurationError("older calls were forgotten meanwhile: the journal can't tell; verify more often")
    if not verdict.satisfied:
        raise click.exceptions.Exit(1)


def _since(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    if text.isdecimal():
        return {"since": int(text)}
    if (ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)) is not None:
        then = datetime.now(UTC) - timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
        return {"since_time": then.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    return {"since_time": text}


def _tell(verdict: "Verification") -> None:
    word = "as expected" if verdict.satisfied else "NOT as expected"
    say(f"{word}: {verdict.count} calls match")
    for call in verdict.calls[:_SHOWN]:
        say(f"  {call.seq}  {call.at}  {call.method} {call.path}  {call.status}  {call.outcome}")
    if verdict.count > _SHOWN:
        say(f"  and {verdict.count - _SHOWN} more")
