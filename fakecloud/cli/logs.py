"""Logging of the process, on stderr: stdout is for what a person asked for."""

import logging
import sys
from collections.abc import Mapping

from fakecloud.cli.output import readable

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """A constant message, then its fields as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        shown = (f" {name}={readable(str(value))}" for name, value in _fields(record).items())
        return super().formatMessage(record) + "".join(shown)


def configure(log_format: str, level: str) -> None:
    """Send the log to stderr; libraries only from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        from pythonjsonlogger.json import JsonFormatter

        handler.setFormatter(
            JsonFormatter(
                "{asctime}{levelname}{name}{message}",
                style="{",
                rename_fields={"asctime": "at", "levelname": "level", "name": "logger"},
            )
        )
    else:
        handler.setFormatter(TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("fakecloud").setLevel(level.upper())


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
