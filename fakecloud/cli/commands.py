"""The group `fakecloud` and its subcommands."""

import click

from fakecloud import __version__
from fakecloud.cli.activity import action, completion, flow, reset
from fakecloud.cli.addresses import address, pool
from fakecloud.cli.exec import exec_
from fakecloud.cli.faults import fault
from fakecloud.cli.journal import journal
from fakecloud.cli.loadbalancers import lb
from fakecloud.cli.output import examples
from fakecloud.cli.serve import serve
from fakecloud.cli.servers import server
from fakecloud.cli.verify import verify


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "fakecloud exec -- pytest",
        "fakecloud serve --token secret",
        "export FAKECLOUD_TOKEN=secret",
        "fakecloud server add node-1 127.0.0.11",
        "fakecloud lb list",
        "fakecloud fault add status status=503 --method POST --times 2",
        "fakecloud verify --no-mutations --since 5m",
    ),
)
@click.version_option(__version__, prog_name="fakecloud")
def fakecloud() -> None:
    """A cloud for tests, pipelines and demos: load balancers by REST that carry real traffic, without root."""


for _command in (serve, exec_, lb, server, pool, address, action, flow, fault, journal, verify, reset, completion):
    fakecloud.add_command(_command)
