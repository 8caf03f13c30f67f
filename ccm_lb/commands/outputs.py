"""What commands print and how they end: without secrets, and with an exit code of its own where nothing can be written."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from ccm_lb.redaction import Secrets

FINE, FINDINGS, BAD_INPUT, CANNOT_TELL = 0, 1, 2, 3
"""The exit codes of `ccm-lb dataplane`."""

SOME: Final = 3
ORPHANS: Final = {
    FINE: "there are none, or none any more",
    1: "the cluster or the cloud could not be asked, or one could not be deleted",
    2: "a mistake in what was given",
    SOME: "there are some",
}
"""The exit codes of `ccm-lb orphans`."""

UNWRITABLE: Final = 74
"""EX_IOERR of sysexits.h: none of the commands' own, so that nobody takes half an output for a result."""

CUT_OFF: Final = 128 + signal.SIGPIPE
"""As of a program that SIGPIPE ended: whoever read the output has seen enough."""

_TROUBLE = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})

OPTION = click.option("--output", "-o", type=click.Choice(["text", "json"]), default="text", help="Form of the output.")


def exit_codes(meanings: Mapping[int, str]) -> str:
    """The end of a command's help."""
    return "\n".join(["\b", "Exit codes:", *(f"  {code}  {meaning}" for code, meaning in meanings.items())])


def secrets() -> Secrets:
    """Those that the command under way knows, and is to tell of every one that it reads."""
    context = click.get_current_context(silent=True)
    return (context and context.find_object(Secrets)) or Secrets()


def say(text: str, *, err: bool = False) -> None:
    """Print a line, or several, to standard output or with `err` to standard error."""
    click.echo(printable(secrets().redact(text)), err=err)


def complain(message: str, code: int, output: str, **more: Any) -> int:
    """One line on standard error; with `--output json` the same, and `more`, on standard output, which then is never empty."""
    line = " ".join(message.split())
    if output == "json":
        say(json.dumps({"error": line, **more}, indent=2))
    say(f"ccm-lb: {line}", err=True)
    return code


def printable(text: str) -> str:
    """Without what no terminal's encoding has: JSON may hold halves of characters."""
    return text.encode("utf-8", "backslashreplace").decode()


# ---- where nothing can be written


def flush() -> None:
    """Have everything written. Raises OSError, where Python would print a traceback at its very end."""
    if sys.stdout is not None:
        sys.stdout.flush()


def unwritable(error: BaseException) -> bool:
    """Whether standard output is what failed, and not a file or a connection: those have errors of ours."""
    return type(error) in (OSError, BrokenPipeError) and isinstance(error, OSError) and error.errno in _TROUBLE


def give_up(error: BaseException) -> int:
    """Say so, if there is somebody to hear it; the exit code."""
    # What is still in the buffer would be tried once more at the end of Python, with a traceback.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return CUT_OFF
    try:
        reason = error.strerror if isinstance(error, OSError) else None
        click.echo(f"ccm-lb: the output cannot be written: {reason or error}", err=True)
    except OSError:
        pass  # standard error is the same full disk
    return UNWRITABLE
