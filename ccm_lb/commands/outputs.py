"""What the commands of `ccm-lb dataplane` share: how they end, and what they print when they cannot do what was asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

FINE, FINDINGS, BAD_INPUT, CANNOT_TELL = 0, 1, 2, 3

OPTION = click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")


def exit_codes(meanings: Mapping[int, str]) -> str:
    """The end of a command's help."""
    return "\n".join(["\b", "Exit codes:", *(f"  {code}  {meaning}" for code, meaning in meanings.items())])


def complain(message: str, code: int, output: str, **more: Any) -> int:
    """One line on standard error; with `--output json` the same, and `more`, on standard output, which then is never empty."""
    line = " ".join(message.split())
    if output == "json":
        click.echo(json.dumps({"error": line, **more}, indent=2))
    click.echo(f"ccm-lb: {printable(line)}", err=True)
    return code


def printable(text: str) -> str:
    """Without what no terminal's encoding has: JSON may hold halves of characters."""
    return text.encode("utf-8", "backslashreplace").decode()
