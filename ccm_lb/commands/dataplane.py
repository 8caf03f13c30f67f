"""
`ccm-lb dataplane`: what routes Services in a cluster, whether its configuration is right, and what a Service's clients get.

Exit codes of all of them: 0 fine, 1 findings, 2 bad input, 3 cannot tell.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ccm_lb.commands import dataplane_cluster, outputs
from ccm_lb.commands.outputs import BAD_INPUT, CANNOT_TELL, FINDINGS, FINE
from ccm_lb.errors import ConfigError

if TYPE_CHECKING:
    from ccm_lb.dataplane.files.check import Checked
    from ccm_lb.dataplane.files.findings import Finding


@click.group(
    epilog=outputs.exit_codes(
        {
            FINE: "fine",
            FINDINGS: "findings",
            BAD_INPUT: "bad input",
            CANNOT_TELL: "cannot tell; what each command means by it, its own --help says",
        }
    )
)
def dataplane() -> None:
    """What routes Service traffic in this cluster, and what that does to load balancers."""


for _command in (
    dataplane_cluster.detect,
    dataplane_cluster.preflight,
    dataplane_cluster.verify,
    dataplane_cluster.explain,
    dataplane_cluster.probe,
):
    dataplane.add_command(_command)


@dataplane.command(
    short_help="Check configurations, before something breaks.",
    epilog=outputs.exit_codes(
        {
            FINE: "nothing but advice",
            FINDINGS: "errors or warnings",
            BAD_INPUT: "a file that cannot be read, or holds nothing that is known here",
        }
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@outputs.OPTION
def validate(files: Sequence[str], output: str) -> int:
    """Check kube-proxy configurations (AKS JSON, KubeProxyConfiguration, ConfigMap, DaemonSet) and bare-metal Clusters.

    `-` is standard input. All files are looked at; the exit code is the worst of theirs.
    """
    from ccm_lb.dataplane.files import check, findings

    rows: list[dict[str, Any]] = []
    said: list[Finding] = []
    bad = False
    for file, again in zip(files, (one in files[:place] for place, one in enumerate(files)), strict=True):
        name = _name(file)
        try:
            checked = check.check(_read(file, again=again), name)
        except ConfigError as error:
            bad = True
            outputs.complain(str(error), BAD_INPUT, "text")
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
        outputs.say(str(one))
    if not findings.failing(checked.findings):
        click.echo(f"{checked.document.file}: fine ({checked.what})")


@dataplane.command(
    "convert",
    short_help="Translate between the AKS and upstream's form.",
    epilog=outputs.exit_codes(
        {
            FINE: "translated, and nothing is lost",
            FINDINGS: "something is lost, and said; of a kube-proxy that is not enabled everything: nothing is printed",
            BAD_INPUT: "a file that cannot be read or translated, or that holds several configurations",
        }
    ),
)
@click.argument("file", metavar="FILE")
@click.option("--to", "target", type=click.Choice(["aks", "kubeproxy"]), required=True, help="The form that is wanted.")
@outputs.OPTION
def convert_file(file: str, target: str, output: str) -> int:
    """Translate between the AKS form and upstream's KubeProxyConfiguration; what is lost is said on standard error."""
    from ccm_lb.dataplane.files import check, convert

    name = _name(file)
    try:
        found = check.check(_read(file), name)
    except ConfigError as error:
        return outputs.complain(str(error), BAD_INPUT, output)
    whole = [one for one in found if one.aks is not None or one.kube_proxy is not None]
    if len(whole) != 1:
        return _untranslated(name, found, whole, output)
    (checked,) = whole
    if checked.aks is not None:
        same = convert.Converted(checked.aks.to_json(), ())
        made = same if target == "aks" else convert.to_kube_proxy(checked.aks)
    else:
        content = checked.kube_proxy or {}
        made = convert.to_aks(content) if target == "aks" else convert.as_yaml(content)
    lost = (*checked.left, *made.lost)
    if output == "json":
        click.echo(json.dumps({"text": made.text, "lost": list(lost)}, indent=2))
    else:
        click.echo(made.text or "", nl=False)
        for words in lost:
            click.echo(f"{name}: lost: {words}", err=True)
    return FINDINGS if lost else FINE


def _untranslated(name: str, found: Sequence[Checked], whole: Sequence[Checked], output: str) -> int:
    """Say why none of what was found is translated."""
    if whole:
        lines = " and ".join(str(min(one.document.lines.values(), default=1)) for one in whole)
        return outputs.complain(
            f"{name}: {len(whole)} configurations in it (lines {lines}); give one", BAD_INPUT, output
        )
    said = [each for one in found for each in one.findings]
    for each in said:
        outputs.say(str(each), err=True)
    message = f"{name}: nothing in it that can be translated; see `ccm-lb dataplane validate`"
    return outputs.complain(message, BAD_INPUT, output, findings=[each.as_json() for each in said])


_LARGEST = 4 * 2**20  # bytes; a ConfigMap has one MiB at most


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _read(file: str, *, again: bool = False) -> str:
    """The text of a file, or of standard input for `-`. Raises ConfigError."""
    name = _name(file)
    try:
        if file != "-":
            with Path(file).open("rb") as opened:
                data = opened.read(_LARGEST + 1)
        elif again:
            raise ConfigError(f"{name}: named twice; it can be read once")
        elif sys.stdin is None:
            raise ConfigError(f"{name}: cannot be read: it is closed")
        else:
            data = sys.stdin.buffer.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror or error}") from error
    if len(data) > _LARGEST:
        raise ConfigError(f"{name}: larger than {_LARGEST // 2**20} MiB, which no configuration is")
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ConfigError(f"{name}: UTF-16; expected UTF-8 (in PowerShell: `Set-Content -Encoding utf8`)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text: byte {error.start}") from error
