"""The log: constant messages with fields, one line each, quiet libraries."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ccm_lb.process import log


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
    log.configure("text", 0, stream)
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
        pytest.param("a\nb", r'"a\nb"', id="line-break"),
        pytest.param("a=b", '"a=b"', id="equals"),
        pytest.param("\x1b[31m", '"\\u001b[31m"', id="terminal-escape"),
        pytest.param(None, "None", id="none"),
    ],
)
def test_a_field_in_text_is_quoted_when_needed(value: object, shown: str, stream: io.StringIO) -> None:
    log.configure("text", 0, stream)
    logging.getLogger("ccm_lb").info("said", extra={"field": value})
    assert stream.getvalue().endswith(f" said field={shown}\n")


def test_json_is_one_object_a_line(stream: io.StringIO) -> None:
    log.configure("json", 0, stream)
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
    log.configure(form, 3, stream)
    logging.getLogger("ccm_lb").error("failed", exc_info=failure())
    assert "RuntimeError: cloud unreachable <- ConnectionRefusedError: refused" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_is_shown_from_verbosity_4_on(form: Any, stream: io.StringIO) -> None:
    log.configure(form, 4, stream)
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
    log.configure("text", verbosity, stream)
    logging.getLogger(name).log(level, "said")
    assert bool(stream.getvalue()) is shown


def test_configuring_again_replaces_what_was(stream: io.StringIO) -> None:
    log.configure("text", 0, stream)
    log.configure("text", 0, stream)
    logging.getLogger("ccm_lb").info("once")
    assert stream.getvalue().count("once") == 1
