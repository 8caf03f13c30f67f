"""`fakecloud serve`."""

import contextlib
import ipaddress
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fakecloud.cli.failures import ConfigurationError
from fakecloud.cli.output import examples, readable

if TYPE_CHECKING:
    from fakecloud.config import Settings
    from fakecloud.state.ipam import Network


# Options that are settings of the same name.
_PLAIN = ("interface", "delivery", "action_seconds", "max_load_balancers", "max_connections", "max_body", "flow_log")


class CidrType(click.ParamType[str]):
    """A network in CIDR notation."""

    name = "CIDR"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return str(ipaddress.ip_network(value))
        except ValueError as error:
            self.fail(f"{error}; expected CIDR notation such as 127.84.0.0/16", param, ctx)


@click.command(
    context_settings={"auto_envvar_prefix": "FAKECLOUD", "show_default": True},
    epilog=examples(
        "fakecloud serve",
        "fakecloud serve --token secret --state cloud.db",
        "fakecloud serve --port 0 --ready-file ready.json --pool 127.90.0.0/24",
    ),
)
@click.option("--listen", default="127.0.0.1", metavar="ADDRESS", help="Address of the API.")
@click.option("--port", type=click.IntRange(0, 65535), default=8780, help="Port of the API; 0 takes any free one.")
@click.option("--token", help="Bearer token that clients must send; without one, a random token is made and printed.")
@click.option("--token-file", type=click.Path(path_type=Path), help="Read the token from this file.")
@click.option("--state", type=click.Path(path_type=Path, dir_okay=False), help="Keep state in this SQLite file.")
@click.option(
    "--addresses", type=click.Choice(["loopback", "interface", "shared"]), default="loopback",
    help="loopback: out of 127/8, no right needed, for clients on this machine. interface: added to --interface, "
    "needs NET_ADMIN, IPv6 too. shared: all load balancers on this host's or pod's own address.",
)  # fmt: skip
@click.option("--interface", default="lo", help="For --addresses interface: which one gets the addresses.")
@click.option(
    "--shared-address", metavar="ADDRESS", show_default="the one that leads out",
    help="For --addresses shared: the host's or pod's own address.",
)  # fmt: skip
@click.option(
    "--pool", "pools", envvar="FAKECLOUD_POOL", multiple=True, type=CidrType(), show_default="127.84.0.0/16",
    help="Network that load balancers get addresses from; for loopback inside 127/8. Repeatable.",
)  # fmt: skip
@click.option(
    "--delivery", type=click.Choice(["proxy", "direct"]), default="proxy",
    help="proxy: a new connection to a target's port. direct: packets keep their destination and are routed to a node, "
    "which has to take them; needs --addresses interface, NET_ADMIN, nft, and clients that route --pool to this machine.",
)  # fmt: skip
@click.option(
    "--target-network", "target_networks", envvar="FAKECLOUD_TARGET_NETWORK", multiple=True, type=CidrType(),
    help="Network that may be forwarded to; anything else is refused. Repeatable. "
    "Default: loopback, the private networks (RFC 1918, fc00::/7) and 100.64.0.0/10. The metadata services of clouds "
    "(169.254.0.0/16, fd00:ec2::254 and their like) only when named themselves.",
)  # fmt: skip
@click.option(
    "--scenarios", type=click.Path(path_type=Path, dir_okay=False), help="Named faults in YAML, for `fakecloud fault`.",
)  # fmt: skip
@click.option(
    "--action-seconds", type=click.FloatRange(0, 3600), default=0.0,
    help="How long a change takes after it was accepted; 0: it is done when the answer arrives.",
)  # fmt: skip
@click.option("--max-load-balancers", type=click.IntRange(min=1), default=10_000, help="One more is refused: 409.")
@click.option("--max-connections", type=click.IntRange(min=1), default=100_000, help="One more is reset.")
@click.option("--max-body", type=click.IntRange(min=1024), default=2**20, help="Bytes of a request's body; more: 413.")
@click.option(
    "--flow-log", type=click.Path(path_type=Path, dir_okay=False),
    help="Append every connection that has ended to this file, one JSON line each.",
)  # fmt: skip
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of the log on stderr.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option(
    "--ready-file", type=click.Path(path_type=Path, dir_okay=False),
    help="Write url, token and pid as JSON to this file (mode 0600) once the API answers; it is gone when the process ends.",
)  # fmt: skip
@click.option(
    "--until-stdin-ends", is_flag=True,
    help="End when standard input does: with a pipe from the process that started it, it never outlives that process.",
)  # fmt: skip
def serve(**options: Any) -> None:
    """
    Run the cloud: its API and its load balancers, until SIGTERM or Ctrl-C.

    Every option can be given as an environment variable too: FAKECLOUD_PORT, FAKECLOUD_TOKEN, ...
    """
    from fakecloud.cli import logs
    from fakecloud.cli.readyfile import ReadyFile, ReadyFileError
    from fakecloud.cloud.store import StoreError

    logs.configure(options["log_format"], options["log_level"])
    _refuse_what_has_no_effect(options)
    settings, generated = _settings(options)
    from fakecloud import app

    ready = None if options["ready_file"] is None else ReadyFile(options["ready_file"])

    @contextlib.contextmanager
    def announced(url: str) -> Iterator[None]:
        click.echo(f"fakecloud answers on {url}")
        if generated:
            click.echo(f"token: {settings.token} (made for this run; --token or FAKECLOUD_TOKEN sets one)")
        with ready.shown(url, settings.token) if ready is not None else contextlib.nullcontext():
            yield

    try:
        if ready is not None:
            ready.claim()
        _run(app.serve(settings, announced, until_stdin_ends=options["until_stdin_ends"]))
    except (app.StartError, StoreError, ReadyFileError) as error:
        raise ConfigurationError(readable(str(error))) from error


def _refuse_what_has_no_effect(options: dict[str, Any]) -> None:
    """Raises ConfigurationError for an option that was given although another one makes it mean nothing."""
    context = click.get_current_context()

    def given(name: str) -> bool:
        return context.get_parameter_source(name) is not ParameterSource.DEFAULT

    addresses, delivery = options["addresses"], options["delivery"]
    if given("interface") and addresses != "interface":
        raise ConfigurationError(
            f"--interface {options['interface']}: it belongs to --addresses interface; addresses are {addresses}"
        )
    if given("max_connections") and delivery == "direct":
        raise ConfigurationError(
            f"--max-connections {options['max_connections']}: it belongs to --delivery proxy; "
            "with direct, connections end at the nodes"
        )


def _run(main: Any) -> None:
    """Run on uvloop, which carries traffic faster; where it does not exist, asyncio's own loop does."""
    import asyncio

    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main)


def _settings(options: dict[str, Any]) -> "tuple[Settings, bool]":
    """The settings, and whether the token was made up."""
    from pydantic import ValidationError

    from fakecloud.config import Settings
    from fakecloud.faults import scenarios
    from fakecloud.state.networks import target_networks
    from fakecloud.state.policy import AddressMode

    given = _token(options["token"], options["token_file"])
    try:
        settings = Settings(
            listen=options["listen"],
            port=options["port"],
            token=given or secrets.token_urlsafe(24),
            state=options["state"],
            addresses=AddressMode(options["addresses"]),
            pools=_pools(options),
            target_networks=target_networks(options["target_networks"]),
            scenarios={} if options["scenarios"] is None else scenarios.read(options["scenarios"]),
            **{name: options[name] for name in _PLAIN},
        )
    except ValidationError as error:
        raise ConfigurationError("--" + error.errors()[0]["msg"].removeprefix("Value error, ")) from error
    except scenarios.ScenarioError as error:
        raise ConfigurationError(str(error)) from error
    return settings, given is None


def _pools(options: dict[str, Any]) -> "tuple[Network, ...]":
    if options["addresses"] == "shared":
        if options["pools"]:
            raise ConfigurationError("--pool: with --addresses shared there is one address; --shared-address names it")
        return (ipaddress.ip_network(_own_address(options["shared_address"])),)
    if options["shared_address"] is not None:
        raise ConfigurationError("--shared-address: it belongs to --addresses shared")
    if not options["pools"] and options["addresses"] == "interface":
        raise ConfigurationError("--pool: with --addresses interface, say which network may be used, e.g. 10.96.8.0/24")
    return tuple(ipaddress.ip_network(pool) for pool in options["pools"] or ["127.84.0.0/16"])


def _own_address(given: str | None) -> str:
    if given is not None:
        try:
            return str(ipaddress.IPv4Address(given))
        except ValueError as error:
            raise ConfigurationError(f"--shared-address {given}: expected an IPv4 address of this machine") from error
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the kernel only says which address it would use towards a documentation network.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError as error:
            raise ConfigurationError("--addresses shared: no way out of this machine; give --shared-address") from error


def _token(token: str | None, token_file: Path | None) -> str | None:
    if token is not None and token_file is not None:
        raise ConfigurationError("--token and --token-file both name a token; give one of them")
    if token_file is None:
        text, where = token, "--token"
    else:
        where = f"--token-file {token_file}"
        try:
            text = token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
            raise ConfigurationError(f"{where}: {reason}; expected a readable file that holds the token") from error
    if text is not None and (not text or not text.isascii() or not text.isprintable() or " " in text):
        raise ConfigurationError(f"{where}: expected one or more printable ASCII characters without blanks")
    return text
