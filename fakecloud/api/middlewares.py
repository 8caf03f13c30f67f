"""Around every request: the journal outside, then errors as problems, then the token."""

import asyncio
import hmac
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

_MAX_HEADER = 255
_GONE_CHECK = 0.02


@dataclass(frozen=True)
class Recorder:
    """Writes each call of /v1 into the journal, the refused ones too."""

    journal: Journal
    now: Callable[[], str]

    def middleware(self) -> Middleware:
        @web.middleware
        async def record(request: web.Request, handler: Handler) -> web.StreamResponse:
            note = request[NOTE] = Note()
            request_id = (request.headers.get("X-Request-Id") or uuid.uuid4().hex)[:_MAX_HEADER]
            started = time.monotonic()
            response = await handler(request)
            response.headers["X-Request-Id"] = request_id
            if request.path.startswith("/v1/") and not is_control(request.path):
                self._add(request, response, note, request_id, time.monotonic() - started)
            if isinstance(response, Unanswered):
                await _let_go(request, response)
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
            path=request.path,
            query=request.query_string,
            owner=note.owner.uid if note.owner is not None else None,
            cluster=note.owner.cluster if note.owner is not None else None,
            resource=note.resource,
            request_id=request_id,
            status=status,
            applied=outcome is Outcome.APPLIED,
            outcome=outcome,
            user_agent=request.headers.get("User-Agent"),
            fencing=request.headers.get("Fencing-Token"),
            seconds=round(seconds, 6),
            faults=note.faults,
        )
        self.journal.add(call)
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


def bearer_token(token: str) -> Middleware:
    """Let nothing under /v1 through without the token."""
    expected = token.encode()

    @web.middleware
    async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/metrics" or request.path == "/v1" or request.path.startswith("/v1/"):
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            # Compared in constant time; what a header can't encode is not the token either.
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(errors="replace"), expected):
                refused = errors.problem(
                    401,
                    "unauthorized",
                    "this needs the header Authorization: Bearer <token> with the token fakecloud was started with",
                )
                response = problem_response(refused.problem)
                response.headers["WWW-Authenticate"] = 'Bearer realm="fakecloud"'
                return response
        return await handler(request)

    return authenticate
