"""
The form of the log: text for eyes or JSON lines for machines, constant messages with their fields behind them.

    log.info("ensured load balancer", extra={"service": "default/web", "seconds": 0.3})

Verbosity (`-v`): 0 and 1 what changed, 2 decisions too, 4 tracebacks too, 6 the libraries' own messages too.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

DECISIONS = 2
TRACEBACKS = 4
LIBRARIES = 6


def configure(format: Literal["text", "json"], verbosity: int, stream: TextIO) -> None:  # noqa: A002 - the flag's name
    """Send this process's log to `stream`. Replaces what was configured before."""
    handler = logging.StreamHandler(stream)
    tracebacks = verbosity >= TRACEBACKS
    handler.setFormatter(
        _JsonFormatter(tracebacks=tracebacks) if format == "json" else _TextFormatter(tracebacks=tracebacks)
    )
    logging.basicConfig(handlers=[handler], force=True, level=logging.WARNING)
    logging.getLogger("ccm_lb").setLevel(logging.DEBUG if verbosity >= DECISIONS else logging.INFO)
    for library in ("kopf", "aiohttp", "asyncio"):
        # A level of its own: kopf sets none, but reports every event of every object at DEBUG and INFO.
        logging.getLogger(library).setLevel(logging.DEBUG if verbosity >= LIBRARIES else logging.WARNING)
    if verbosity < LIBRARIES:
        # What ends a watch is told by ours, as a warning; kopf calls the same an ERROR, at each of its attempts, with its own traceback.
        logging.getLogger("kopf").setLevel(logging.CRITICAL if verbosity < DECISIONS else logging.ERROR)
    logging.captureWarnings(capture=True)


def causes(error: BaseException) -> str:
    """An exception and what caused it, outermost first, on one line."""
    return " <- ".join(_chain(error))


def _chain(error: BaseException) -> Iterator[str]:
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        text = " ".join(str(current).split())
        if isinstance(current, BaseExceptionGroup):
            text = f"{text}: {'; '.join(causes(one) for one in current.exceptions)}"
        name = type(current).__name__
        yield f"{name}: {text}" if text else name
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: value for name, value in vars(record).items() if name not in RESERVED_ATTRS and not name.startswith("_")
    }


def _timestamp(record: logging.LogRecord) -> str:
    when = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _TextFormatter(logging.Formatter):
    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields(record)
        if record.exc_info and (error := record.exc_info[1]):
            fields["error"] = causes(error)
        words = [_timestamp(record), record.levelname, record.name, record.getMessage()]
        line = " ".join([*words, *(f"{name}={_quoted(value)}" for name, value in fields.items())])
        if self._tracebacks and record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _quoted(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not any(character in text for character in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)


class _JsonFormatter(JsonFormatter):
    def __init__(self, *, tracebacks: bool) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        log_data.update(
            time=_timestamp(record), level=record.levelname, logger=record.name, message=record.getMessage()
        )
        log_data.update(self._extra(record, message_dict))
        if record.exc_info and (error := record.exc_info[1]):
            log_data["error"] = causes(error)

    def _extra(self, record: logging.LogRecord, message_dict: Mapping[str, Any]) -> Mapping[str, Any]:
        fields = _fields(record)
        if self._tracebacks and "exc_info" in message_dict:
            fields["traceback"] = message_dict["exc_info"]
        return fields
