"""
`ccm-lb dataplane`: what routes Services in a cluster, whether its configuration is right, and what a Service's clients get.

Exit codes of all of them: 0 fine, 1 findings, 2 bad input, 3 cannot tell.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ccm_lb.commands import dataplane_cluster
from ccm_lb.errors import ConfigError

if TYPE_CHECKING:
    from ccm_lb.dataplane.files.check import Checked
    from ccm_lb.dataplane.files.findings import Finding

FINE, FINDINGS, BAD_INPUT = 0, 1, 2

_OUTPUT = click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Form of the output."
)


@click.group()
def dataplane() -> None:
    """What routes Service traffic in this cluster, and what that does to load balancers.

    Exit codes: 0 fine, 1 findings, 2 bad input, 3 cannot tell.
    """


for _command in (
    dataplane_cluster.detect,
    dataplane_cluster.preflight,
    dataplane_cluster.verify,
    dataplane_cluster.explain,
    dataplane_cluster.probe,
):
    dataplane.add_command(_command)


@dataplane.command(short_help="Check configurations, before something breaks.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_OUTPUT
def validate(files: Sequence[str], output: str) -> int:
    """Check kube-proxy configurations (AKS JSON, KubeProxyConfiguration, ConfigMap, DaemonSet) and bare-metal Clusters.

    `-` is standard input. All files are looked at; the exit code is the worst of theirs.
    """
    from ccm_lb.dataplane.files import findings

    rows: list[dict[str, Any]] = []
    said: list[Finding] = []
    bad = False
    for name, text in _read(files):
        try:
            checked = _checked(text, name)
        except ConfigError as error:
            bad = True
            click.echo(f"ccm-lb: {error}", err=True)
            rows.append({"file": name, "what": None, "error": str(error), "findings": []})
            continue
        for one in checked:
            said += one.findings
            rows.append({"file": name, "what": one.what, "findings": [found.as_json() for found in one.findings]})
            if output == "text":
                _print(one)
    if output == "json":
        click.echo(json.dumps(rows, indent=2, default=str))
    return BAD_INPUT if bad else FINDINGS if findings.failing(said) else FINE


def _print(checked: Checked) -> None:
    from ccm_lb.dataplane.files import findings

    for one in checked.findings:
        click.echo(str(one))
    if not findings.failing(checked.findings):
        click.echo(f"{checked.document.file}: fine ({checked.what})")


@dataplane.command("convert", short_help="Translate between the AKS and upstream's form.")
@click.argument("file", metavar="FILE")
@click.option("--to", "target", type=click.Choice(["aks", "kubeproxy"]), required=True, help="The form that is wanted.")
@_OUTPUT
def convert_file(file: str, target: str, output: str) -> int:
    """Translate between the AKS form and upstream's KubeProxyConfiguration; what is lost is said on standard error."""
    from ccm_lb.dataplane.files import convert

    ((name, text),) = _read([file])
    checked = next((one for one in _checked(text, name) if one.aks is not None or one.kube_proxy is not None), None)
    if checked is None:
        for found in (found for one in _checked(text, name) for found in one.findings):
            click.echo(str(found), err=True)
        raise ConfigError(f"{name}: nothing in it that can be translated; see `ccm-lb dataplane validate`")
    if checked.aks is not None:
        upstream = convert.to_kube_proxy(checked.aks)
        made = convert.Converted(checked.aks.to_json(), ()) if target == "aks" else upstream
    else:
        content = checked.kube_proxy or {}
        made = convert.to_aks(content) if target == "aks" else convert.as_yaml(content)
    lost = (*checked.left, *made.lost)
    if output == "json":
        click.echo(json.dumps({"text": made.text, "lost": list(lost)}, indent=2))
    else:
        click.echo(made.text, nl=False)
        for words in lost:
            click.echo(f"{name}: lost: {words}", err=True)
    return FINDINGS if lost else FINE


def _read(names: Iterable[str]) -> list[tuple[str, str]]:
    """Names and texts. Raises ConfigError."""
    found = []
    for name in names:
        try:
            data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
            found.append(("standard input" if name == "-" else name, data.decode("utf-8-sig")))
        except OSError as error:
            raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name}: not UTF-8 text: byte {error.start}") from error
    return found


def _checked(text: str, name: str) -> list[Checked]:
    from ccm_lb.dataplane.files import check

    return check.check(text, name)
