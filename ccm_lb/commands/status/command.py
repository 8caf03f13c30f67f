"""
`ccm-lb status`: every Service of type LoadBalancer, what it has, and why it waits.

The cluster says what is published and what was warned of. When a Service is tried again, and how often it has failed, only the holder of
the Lease knows: it is asked over its port, and where it cannot be asked, that is said.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ccm_lb.commands import outputs
from ccm_lb.commands.outputs import BAD_INPUT, CANNOT_TELL, FINDINGS, FINE
from ccm_lb.errors import CCMError, ConfigError

if TYPE_CHECKING:
    from ccm_lb.commands.status.ask import Question
    from ccm_lb.commands.status.show import Show

_EVERY = 2.0  # seconds between two looks


@click.command(
    short_help="All load balancers: what they have, and why one waits.",
    epilog=outputs.exit_codes(
        {
            FINE: "every Service is served, or paused as its user asks",
            FINDINGS: "one is not",
            BAD_INPUT: "bad input, such as a kubeconfig that is none",
            CANNOT_TELL: "the cluster does not answer, or does not let it be read",
        }
    ),
)
@click.option("--namespace", "-n", default="", metavar="NAME", help="Only the Services of this namespace.")
@click.option("--output", "-o", type=click.Choice(["text", "wide", "json"]), default="text", help="Form of the output.")
@click.option("--watch", "-w", is_flag=True, help="Go on, and show it again when it has changed.")
@click.option("--kubeconfig", metavar="FILE", envvar="KUBECONFIG", help="The cluster; a pod's own by default.")
@click.option("--master", metavar="URL", help="In place of the kubeconfig's server.")
@click.option(
    "--load-balancer-class",
    "classes",
    multiple=True,
    metavar="CLASS",
    help="Show Services of this class too; the leader, where it is asked, knows its own.",
)
@click.option("--lease-namespace", default="kube-system", show_default=True, help="Where the Lease is.")
@click.option("--lease-name", default="cloud-controller-manager", show_default=True, help="What it is called.")
@click.option(
    "--leader-port",
    default="10258",
    show_default=True,
    metavar="PORT",
    help="The port of the pod that holds the Lease; https:PORT for its --secure-port.",
)
@click.option("--leader", "leader_url", metavar="URL", help="Ask the leader here, and not through the API server.")
@click.pass_context
def status(ctx: click.Context, /, **given: Any) -> int:
    """
    Show every Service of type LoadBalancer: its addresses, how many nodes get its traffic, and why it waits.

    It needs a kubeconfig that may read Services and nodes. The Lease, and the leader through its pod's proxy, are asked as well, and
    where that is not allowed the command says what it does not know.
    """
    from ccm_lb.commands.status import ask, show
    from ccm_lb.commands.status.leader import Where

    where = Where(
        given["lease_namespace"], given["lease_name"], given["leader_port"], (given["leader_url"] or "").rstrip("/")
    )
    question = ask.Question(
        Path(given["kubeconfig"]) if given["kubeconfig"] else None,
        given["master"],
        given["namespace"],
        where,
        frozenset(given["classes"]),
    )
    shown = show.Show(given["output"], terminal=ctx.color is not False and sys.stdout.isatty())
    try:
        return asyncio.run(_run(question, shown, watch=given["watch"]))
    except ConfigError as error:
        return outputs.complain(str(error), BAD_INPUT, given["output"])
    except CCMError as error:
        return outputs.complain(str(error), CANNOT_TELL, given["output"])


async def _run(question: Question, show: Show, *, watch: bool) -> int:
    from importlib.metadata import version

    from ccm_lb.commands.status import ask
    from ccm_lb.kube.connect import connect

    api = await connect(
        question.kubeconfig, question.master, user_agent=f"ccm-lb/{version('ccm-lb')}", secrets=outputs.secrets()
    )
    try:
        seen = await ask.ask(api, question)
        show.first(seen)
        while watch:
            await asyncio.sleep(_EVERY)
            show.again(await ask.ask(api, question))
        return FINE if seen.fine else FINDINGS
    finally:
        await api.close()
