"""Around every request: the journal outside, errors as problems inside."""

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from fakecloud import errors
from fakecloud.api.faultinjection import is_control
from fakecloud.api.operations import NOTE, Note
from fakecloud.api.responses import Unanswered, problem_response
from fakecloud.cloud.store import StoreError
from fakecloud.dataplane.proxy.sockets import reset
from fakecloud.errors import ProblemError
from fakecloud.journal import Journal
from fakecloud.models.journal import Call, Outcome

logger = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_GONE_CHECK = 0.02
# What the journal keeps of a text, so that its entries have a size whatever is sent.
_LONGEST = 255
_LONGEST_PATH = 1024
# How long a client that still sends may take to read its answer.
_PARTING_SECONDS = 1.0


@dataclass(frozen=True)
class Recorder:
    """Writes each call of /v1 into the journal, the refused ones too; `authorized` says whose has the token."""

    journal: Journal
    now: Callable[[], str]
    authorized: Callable[[web.Request], bool]

    def middleware(self) -> Middleware:
        @web.middleware
        async def record(request: web.Request, handler: Handler) -> web.StreamResponse:
            note = request[NOTE] = Note()
            request_id = _request_id(request)
            started = time.monotonic()
            response = await handler(request)
            response.headers["X-Request-Id"] = request_id
            if request.path.startswith("/v1/") and not is_control(request.path):
                self._add(request, response, note, request_id, time.monotonic() - started)
            if isinstance(response, Unanswered):
                await _let_go(request, response)
            elif not request.content.is_eof():
                await _part(request, response)
            return response

        return record

    def _add(
        self, request: web.Request, response: web.StreamResponse, note: Note, request_id: str, seconds: float
    ) -> None:
        status = 0 if isinstance(response, Unanswered) else response.status
        # A lost reply tells nothing of what was done: the handler's own note does, where it got so far.
        failed = status >= 400 or (status == 0 and note.outcome is Outcome.READ)
        outcome = Outcome.REFUSED if failed and not (note.faults and note.outcome is not Outcome.READ) else note.outcome
        call = Call(
            seq=self.journal.next_number(),
            at=self.now(),
            method=request.method,
            path=_kept(request.path, _LONGEST_PATH),
            query=_kept(request.query_string, _LONGEST_PATH),
            owner=note.owner.uid if note.owner is not None else None,
            cluster=note.owner.cluster if note.owner is not None else None,
            resource=note.resource,
            request_id=request_id,
            status=status,
            applied=outcome is Outcome.APPLIED,
            outcome=outcome,
            user_agent=_kept_header(request, "User-Agent"),
            fencing=_kept_header(request, "Fencing-Token"),
            seconds=round(seconds, 6),
            faults=note.faults,
        )
        self.journal.add(call, authorized=self.authorized(request))
        logger.log(
            logging.INFO if call.applied else logging.DEBUG,
            "api call",
            extra={
                "method": call.method,
                "path": call.path,
                "status": call.status,
                "outcome": call.outcome.value,
                "request_id": call.request_id,
                "seconds": call.seconds,
            },
        )


def _kept(text: str, longest: int = _LONGEST) -> str:
    """As the journal keeps it: a header may hold bytes that are no text, which no answer could hold."""
    return errors.legible(text[:longest])


def _kept_header(request: web.Request, name: str) -> str | None:
    value = request.headers.get(name)
    return None if value is None else _kept(value)


def _request_id(request: web.Request) -> str:
    """The client's own, where it can be sent back; else a new one."""
    given = request.headers.get("X-Request-Id", "")[:_LONGEST]
    return given if given and given.isascii() and given.isprintable() else uuid.uuid4().hex


async def _part(request: web.Request, response: web.StreamResponse) -> None:
    """
    Answer a request whose body nobody has read, and close.

    What still comes stays in the kernel, since to read it would cost. Closed at once, the connection would be reset, and the
    answer lost before the client has read it.
    """
    response.force_close()
    # A client that is gone needs no answer.
    with contextlib.suppress(ConnectionError, TimeoutError):
        await response.prepare(request)
        await response.write_eof()
        if request.transport is not None:
            request.transport.write_eof()
        async with asyncio.timeout(_PARTING_SECONDS):
            await request.content.wait_eof()


async def _let_go(request: web.Request, unanswered: Unanswered) -> None:
    """Keep the connection open as long as was ordered and the client waits, then reset it."""
    transport = request.transport
    while transport is not None and not transport.is_closing() and unanswered.holds():  # noqa: ASYNC110 - neither side tells
        await asyncio.sleep(_GONE_CHECK)
    if transport is not None:
        reset(transport)


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error as a problem document."""
    try:
        return await handler(request)
    except ProblemError as error:
        return problem_response(error.problem)
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        refused = errors.problem(405, "method-not-allowed", f"{request.path} takes {allowed}, not {request.method}")
        response = problem_response(refused.problem)
        response.headers["Allow"] = allowed
        return response
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return problem_response(_refusal(request, error).problem)
    except StoreError as error:
        logger.exception("a write could not be stored")
        return problem_response(errors.problem(503, "storage-failed", f"the change was not made: {error}").problem)
    except Exception:
        logger.exception("a request failed", extra={"method": request.method, "path": request.path})
        refused = errors.problem(500, "internal-error", "fakecloud failed; its log has the details")
        return problem_response(refused.problem)


def _refusal(request: web.Request, error: web.HTTPException) -> ProblemError:
    if error.status == 413:
        return errors.problem(413, "body-too-large", error.text or "the body is too large")
    if error.status == 404:
        return errors.problem(404, "not-found", f"{request.path}: nothing here; /openapi.json describes the API")
    return errors.problem(error.status, "bad-request", error.reason)
