"""The log: constant messages with fields, one line each, quiet libraries."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ccm_lb.process import log
from ccm_lb.redaction import Secrets


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; what the process had configured before comes back afterwards."""
    root = logging.getLogger()
    names = ("ccm_lb", "kopf", "aiohttp", "asyncio")
    handlers, level, levels = root.handlers[:], root.level, [logging.getLogger(name).level for name in names]
    root.handlers.clear()  # or they would be closed by what replaces them
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, previous in zip(names, levels, strict=True):
        logging.getLogger(name).setLevel(previous)
    logging.captureWarnings(capture=False)


def failure() -> Exception:
    try:
        try:
            raise ConnectionRefusedError("refused")
        except OSError as error:
            raise RuntimeError("cloud\nunreachable") from error
    except RuntimeError as error:
        return error


def test_text_has_the_fields_behind_the_message(stream: io.StringIO) -> None:
    log.configure("text", 0, stream, Secrets())
    logging.getLogger("ccm_lb.controller.reconcile").info(
        "ensured load balancer", extra={"service": "default/web", "seconds": 0.3}
    )
    line = stream.getvalue()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO ccm_lb\.controller\.reconcile ensured load balancer .*\n", line
    )
    assert line.endswith(" service=default/web seconds=0.3\n")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param("plain", "plain", id="plain"),
        pytest.param("", '""', id="empty"),
        pytest.param("two words", '"two words"', id="space"),
        pytest.param('say "x"', r'"say \"x\""', id="quotes"),
        pytest.param("a\nb", '"a b"', id="line-break"),
        pytest.param("a=b", '"a=b"', id="equals"),
        pytest.param("\x1b[31m", "\ufffd[31m", id="terminal-escape"),
        pytest.param(None, "None", id="none"),
    ],
)
def test_a_field_in_text_is_quoted_when_needed(value: object, shown: str, stream: io.StringIO) -> None:
    log.configure("text", 0, stream, Secrets())
    logging.getLogger("ccm_lb").info("said", extra={"field": value})
    assert stream.getvalue().endswith(f" said field={shown}\n")


def test_json_is_one_object_a_line(stream: io.StringIO) -> None:
    log.configure("json", 0, stream, Secrets())
    logging.getLogger("ccm_lb.controller.reconcile").warning(
        "%s failed", "sync", extra={"service": "default/web", "tries": 2}
    )
    line: dict[str, Any] = json.loads(stream.getvalue())
    assert re.fullmatch(r".*T.*\.\d{3}Z", line.pop("time"))
    expected = {
        "level": "WARNING",
        "logger": "ccm_lb.controller.reconcile",
        "message": "sync failed",
        "service": "default/web",
        "tries": 2,
    }
    assert line == expected


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_exception_is_its_chain_of_causes_on_one_line(form: Any, stream: io.StringIO) -> None:
    log.configure(form, 3, stream, Secrets())
    logging.getLogger("ccm_lb").error("failed", exc_info=failure())
    assert "RuntimeError: cloud unreachable <- ConnectionRefusedError: refused" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_shown_from_verbosity_4_on(form: Any, stream: io.StringIO) -> None:
    log.configure(form, 4, stream, Secrets())
    logging.getLogger("ccm_lb").error("failed", exc_info=failure())
    assert "Traceback (most recent call last)" in stream.getvalue()
    assert "RuntimeError: cloud unreachable <- ConnectionRefusedError: refused" in stream.getvalue()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(ValueError(), "ValueError", id="no-text"),
        pytest.param(ExceptionGroup("both", [ValueError("a"), KeyError("b")]), "ValueError: a; KeyError", id="group"),
    ],
)  # fmt: skip
def test_causes_are_said_in_one_line(error: BaseException, expected: str) -> None:
    assert expected in log.causes(error)


def test_a_cause_that_was_suppressed_is_left_out() -> None:
    error = failure()
    error.__cause__ = None
    error.__suppress_context__ = True
    assert log.causes(error) == "RuntimeError: cloud unreachable"


def test_a_ring_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert log.causes(first) == "ValueError: a <- ValueError: b"


@pytest.mark.parametrize(
    ("verbosity", "name", "level", "shown"),
    [
        pytest.param(0, "ccm_lb.x", logging.INFO, True, id="ours-info"),
        pytest.param(1, "ccm_lb.x", logging.DEBUG, False, id="ours-debug-at-1"),
        pytest.param(2, "ccm_lb.x", logging.DEBUG, True, id="ours-debug-at-2"),
        pytest.param(5, "kopf.objects", logging.INFO, False, id="kopf-info-at-5"),
        pytest.param(1, "kopf.objects", logging.ERROR, False, id="kopf-error-at-1"),
        pytest.param(2, "kopf.objects", logging.ERROR, True, id="kopf-error-at-2"),
        pytest.param(5, "kopf.objects", logging.WARNING, False, id="kopf-warning-at-5"),
        pytest.param(0, "aiohttp.server", logging.WARNING, True, id="aiohttp-warning"),
        pytest.param(6, "kopf.objects", logging.DEBUG, True, id="kopf-debug-at-6"),
        pytest.param(6, "aiohttp.server", logging.DEBUG, True, id="aiohttp-debug-at-6"),
        pytest.param(0, "somebody", logging.INFO, False, id="others-info"),
    ],
)
def test_verbosity_opens_one_layer_after_the_other(
    verbosity: int,
    name: str,
    level: int,
    shown: bool,  # noqa: FBT001
    stream: io.StringIO,
) -> None:
    log.configure("text", verbosity, stream, Secrets())
    logging.getLogger(name).log(level, "said")
    assert bool(stream.getvalue()) is shown


def test_configuring_again_replaces_what_was(stream: io.StringIO) -> None:
    log.configure("text", 0, stream, Secrets())
    log.configure("text", 0, stream, Secrets())
    logging.getLogger("ccm_lb").info("once")
    assert stream.getvalue().count("once") == 1


# ---- what comes from outside

TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6.0123456789-abcdefghij"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("verbosity", [0, 4])
def test_a_secret_leaves_by_no_part_of_a_record(form: Any, verbosity: int, stream: io.StringIO) -> None:
    known = Secrets()
    known.add(TOKEN, 'quoted "password"')
    log.configure(form, verbosity, stream, known)
    said = {"field": f"a {TOKEN}", "list": [TOKEN], "map": {"x": [TOKEN]}, "quoted": 'a quoted "password"'}
    try:
        raise ValueError(f"the cloud said {TOKEN}") from RuntimeError(f'{TOKEN}\nquoted "password"')
    except ValueError as error:
        logging.getLogger("ccm_lb").error("%s", TOKEN, exc_info=error, extra=said)
    assert TOKEN not in stream.getvalue()
    assert "password" not in stream.getvalue()
    assert "***" in stream.getvalue()


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "said",
    [{"error": "x" * 100_000}, {"one": '"' * 1500, "two": "\u20ac" * 1500}, {f"f{number}": "y" * 150 for number in range(50)}],
)  # fmt: skip
def test_no_line_is_longer_than_2_kib(form: Any, said: dict[str, str], stream: io.StringIO) -> None:
    log.configure(form, 4, stream, Secrets())
    try:
        raise ValueError("z" * 50_000 + "\nsecond line")
    except ValueError as error:
        logging.getLogger("ccm_lb").error("failed", exc_info=error, extra=said)
    lines = stream.getvalue().splitlines()
    assert max(len(line.encode()) + 1 for line in lines) <= log.LINE
    assert "failed" in lines[0]
    if form == "json":
        assert {json.loads(line)["level"] for line in lines} == {"ERROR"}


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_text_from_outside_looks_like_no_record_and_steers_no_terminal(form: Any, stream: io.StringIO) -> None:
    log.configure(form, 4, stream, Secrets())
    forged = "\x1b[2J\u202e\n2026-01-01T00:00:00.000Z INFO ccm_lb all is well"
    try:
        raise ValueError(forged)
    except ValueError as error:
        logging.getLogger("ccm_lb").error("%s", forged, exc_info=error, extra={"field": forged})
    assert not any(one in stream.getvalue() for one in ("\x1b", "\u202e", "\\u001b", "\\u202e"))
    assert not any(line.startswith("2026-01-01") for line in stream.getvalue().splitlines())


def test_what_cannot_be_written_is_said_without_its_content(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    log.configure("text", 0, stream, Secrets())
    logging.getLogger("ccm_lb").error("%d", TOKEN)
    assert stream.getvalue() == "a log record of ccm_lb could not be written\n"
    assert TOKEN not in "".join(capsys.readouterr())


def test_what_nobody_catches_is_logged_without_secrets(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Secrets()
    known.add(TOKEN)
    for hook in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(*((threading, hook) if hook == "excepthook" else (sys, hook)), None, raising=True)
    log.configure("text", 4, stream, known)
    log.catch_what_nobody_catches()

    class Leaving:
        def __del__(self) -> None:
            raise ValueError(TOKEN)

    def fail() -> None:
        raise ValueError(TOKEN)

    thread = threading.Thread(target=fail, name="reader")
    thread.start()
    thread.join()
    left = Leaving()
    del left
    written = stream.getvalue()
    assert "a thread ended" in written
    assert "nobody could catch" in written
    assert TOKEN not in written + "".join(capsys.readouterr())
    assert written.count("ValueError: ***") >= 2


async def test_a_task_whose_exception_nobody_asks_for_is_logged_without_secrets(stream: io.StringIO) -> None:
    known = Secrets()
    known.add(TOKEN)
    log.configure("text", 4, stream, known)
    context = {"message": f"Task exception was never retrieved: {TOKEN}", "exception": ValueError(TOKEN)}
    asyncio.get_running_loop().call_exception_handler(context)
    assert "never retrieved: ***" in stream.getvalue()
    assert TOKEN not in stream.getvalue()
