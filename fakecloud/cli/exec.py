"""`fakecloud exec`: a cloud for one command, in any language."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import click

from fakecloud.cli.failures import ConfigurationError
from fakecloud.cli.output import examples, readable


@click.command(
    "exec",
    context_settings={"allow_interspersed_args": False},
    epilog=examples(
        "fakecloud exec -- pytest",
        "fakecloud exec --nodes 2 -- sh -c 'fakecloud server list'",
        "fakecloud exec --fault 'status status=503 times=2' -- go test ./...",
        "fakecloud exec --serve=--action-seconds=1 -- npm test",
    ),
)
@click.option(
    "--nodes",
    type=click.IntRange(0, 250),
    default=0,
    show_default=True,
    help="Register so many servers: node-1, node-2, ...",
)
@click.option(
    "--fault", "faults", multiple=True, metavar="'KIND [NAME=VALUE]...'",
    help="Order a fault, in the words of `fakecloud fault add`; times=N and forSeconds=N end it. Repeatable.",
)  # fmt: skip
@click.option("--serve", "args", multiple=True, metavar="OPTION", help="An option for `fakecloud serve`. Repeatable.")
@click.argument("command", nargs=-1, required=True)
def exec_(nodes: int, faults: tuple[str, ...], args: tuple[str, ...], command: tuple[str, ...]) -> None:
    """
    Run COMMAND with a fresh cloud of its own, which is gone afterwards; the exit code is the command's.

    The command finds in its environment FAKECLOUD_URL, FAKECLOUD_TOKEN, and FAKECLOUD_NODES: the addresses of its servers, divided
    by blanks. They lie in 127.0.0.0/8, and no other fakecloud of this machine has them.
    """
    from fakecloud.cli.faults import written
    from fakecloud.client import FakecloudError
    from fakecloud.networks import NoNetworkError
    from fakecloud.testing.process import FakecloudProcess, StartFailedError

    orders = [written(text) for text in faults]
    try:
        with FakecloudProcess(args) as process:
            addresses = [process.node(number) for number in range(1, nodes + 1)]
            with process.client() as cloud:
                for number, address in enumerate(addresses, 1):
                    cloud.add_server({"id": f"node-{number}", "name": f"node-{number}", "addresses": [address]})
                for order in orders:
                    cloud.add_fault(order)
            code = _run(command, {**os.environ, **process.environment, "FAKECLOUD_NODES": " ".join(addresses)})
    except (FakecloudError, NoNetworkError, StartFailedError) as error:
        raise ConfigurationError(readable(f"exec: {error}")) from error
    sys.exit(code)


def _run(command: tuple[str, ...], environment: dict[str, str]) -> int:
    """The exit code that a shell would give; signals to end are the command's to obey."""
    with _forwarding() as children:
        try:
            child = subprocess.Popen(command, env=environment)  # noqa: S603 - what the user asked for
        except FileNotFoundError:
            click.echo(readable(f"Error: exec: {command[0]}: there is no such program"), err=True)
            return 127
        except OSError as error:
            click.echo(readable(f"Error: exec: {command[0]}: {error.strerror}"), err=True)
            return 126
        children.append(child)
        code = child.wait()
    return 128 - code if code < 0 else code


@contextlib.contextmanager
def _forwarding() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Signals go to the children. Ctrl-C reaches them without us; until they have ended, it does not end this process."""
    children: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: object) -> None:
        for child in children:
            child.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
