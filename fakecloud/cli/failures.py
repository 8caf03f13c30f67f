"""Errors of the command line: one line, and an exit code that a script can act on."""

import click


class ConfigurationError(click.ClickException):
    """The command can't do what it was told: exit code 2."""

    exit_code = 2
