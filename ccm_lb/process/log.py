"""
The form of the log: text for eyes or JSON lines for machines, constant messages with their fields behind them.

    log.info("ensured load balancer", extra={"service": "default/web", "seconds": 0.3})

Nothing leaves with a secret or a control character in it, and no line is longer than LINE: texts from outside are shortened first.

Verbosity (`-v`): 0 and 1 what changed, 2 decisions too, 4 tracebacks too, 6 the libraries' own messages too.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TextIO

from ccm_lb.redaction import Secrets, clean, cut

DECISIONS = 2
TRACEBACKS = 4
LIBRARIES = 6

LINE = 2048
"""Bytes of a line, the line break included."""

_NO_MORE_THAN = 200  # bytes of a field of a line that is too long because of many


def configure(
    format: Literal["text", "json"],  # noqa: A002 - the flag's name
    verbosity: int,
    stream: TextIO,
    secrets: Secrets,
) -> None:
    """Send this process's log to `stream`, without `secrets`. Replaces what was configured before."""
    handler = _Handler(stream)
    form = _json if format == "json" else _text
    handler.setFormatter(_Formatter(form, secrets, tracebacks=verbosity >= TRACEBACKS))
    logging.basicConfig(handlers=[handler], force=True, level=logging.WARNING)
    logging.getLogger("ccm_lb").setLevel(logging.DEBUG if verbosity >= DECISIONS else logging.INFO)
    for library in ("kopf", "aiohttp", "asyncio"):
        # A level of its own: kopf sets none, but reports every event of every object at DEBUG and INFO.
        logging.getLogger(library).setLevel(logging.DEBUG if verbosity >= LIBRARIES else logging.WARNING)
    if verbosity < LIBRARIES:
        # What ends a watch is told by ours, as a warning; kopf calls the same an ERROR, at each of its attempts, with its own traceback.
        logging.getLogger("kopf").setLevel(logging.CRITICAL if verbosity < DECISIONS else logging.ERROR)
    logging.captureWarnings(capture=True)


def catch_what_nobody_catches() -> None:
    """Exceptions that end a thread, or come up where nobody can be told, become records: Python would print them as they are."""
    log = logging.getLogger("ccm_lb")

    def in_thread(args: threading.ExceptHookArgs) -> None:
        log.error("a thread ended", exc_info=args.exc_value, extra={"name_of_thread": args.thread and args.thread.name})

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        log.error("an exception that nobody could catch", exc_info=args.exc_value)

    threading.excepthook, sys.unraisablehook = in_thread, unraisable


def causes(error: BaseException) -> str:
    """An exception and what caused it, outermost first, on one line."""
    return " <- ".join(_chain(error))


def trace(error: BaseException, secrets: Secrets) -> list[str]:
    """The lines of an exception's traceback, fit to leave this process."""
    return [_indented(line) for line in secrets.redact("".join(traceback.format_exception(error))).splitlines()]


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


Fields = dict[str, object]
_HEAD = ("time", "level", "logger")


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - its name in logging
        """Said without the record: what Python would print of it goes through no formatter."""
        with contextlib.suppress(Exception):
            self.stream.write(f"a log record of {record.name} could not be written\n")


class _Formatter(logging.Formatter):
    """A record as lines: one, and those of its traceback where that is wanted."""

    def __init__(self, form: Callable[[Fields], str], secrets: Secrets, *, tracebacks: bool) -> None:
        super().__init__()
        self._form, self._secrets, self._tracebacks = form, secrets, tracebacks

    def format(self, record: logging.LogRecord) -> str:
        head: Fields = {
            "time": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": self._secrets.line(record.getMessage(), LINE),
        }
        fields: Fields = {name: self._fit_to_leave(value) for name, value in _extra(record).items()}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["error"] = self._secrets.line(causes(error), LINE)
        lines = [self._line({**head, **fields})]
        if self._tracebacks and error is not None:
            numbered = {"message": "traceback", "of": head["message"]}
            lines += (self._line({**head, **numbered, "line": one}) for one in trace(error, self._secrets))
        return "\n".join(lines)

    def _fit_to_leave(self, value: object) -> object:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {str(name): self._fit_to_leave(one) for name, one in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._fit_to_leave(one) for one in value]
        return self._secrets.line(str(value), LINE)

    def _line(self, fields: Fields) -> str:
        """One line: where it is too long, the longest text in it is cut, then the next."""
        line = self._form(fields)
        for _ in range(2 * len(fields)):
            if (excess := _size(line) - LINE) <= 0:
                return line
            texts = {name: _size(str(value)) for name, value in fields.items() if name not in _HEAD}
            longest = max(texts, key=texts.__getitem__)
            room = max(_NO_MORE_THAN, texts[longest] - excess - 1)
            fields = {**fields, longest: cut(str(fields[longest]), room)}
            line = self._form(fields)
        # Very many fields: those that stand last are left out.
        while _size(line) > LINE and len(fields) > len(_HEAD) + 1:
            fields = dict(list(fields.items())[:-1])
            line = self._form(fields)
        return line


def _indented(line: str) -> str:
    """A line of a traceback: its indentation is kept, since it tells what belongs together."""
    return line[: len(line) - len(line.lstrip(" "))] + cut(clean(line.lstrip(" ")), LINE)


def _size(line: str) -> int:
    return len(line.encode(errors="replace")) + 1


def _text(fields: Fields) -> str:
    time, level, logger, message, *others = fields.items()
    if message[1] == "traceback" and "line" in fields:
        return f"    {fields['line']}"  # nothing that stands in an exception can look like a record of its own
    words = [str(value) for _, value in (time, level, logger, message)]
    return " ".join([*words, *(f"{name}={_quoted(value)}" for name, value in others)])


def _json(fields: Fields) -> str:
    return json.dumps(fields)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _RESERVED and not name.startswith("_")}


# What every record has, and what formatters add.
_RESERVED = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def _timestamp(record: logging.LogRecord) -> str:
    when = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not any(character in text for character in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)
