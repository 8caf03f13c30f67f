"""What faults do to calls of the API. The control endpoints themselves never fail on order."""

import asyncio
import functools
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Middleware
from pydantic_core import from_json

from fakecloud import errors
from fakecloud.api.operations import NOTE, Note
from fakecloud.api.responses import Unanswered, problem_response
from fakecloud.cloud.intents import ActionOrder
from fakecloud.faults.registry import Faults
from fakecloud.faults.rules import Armed, Subject, seconds_of
from fakecloud.models.faults import (
    ActionFault,
    HangFault,
    LatencyFault,
    OutageFault,
    RateLimitFault,
    ResetFault,
    StaleListsFault,
    StaleReadsFault,
    StatusFault,
    TokenExpiryFault,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OwnerOf = Callable[[str], tuple[str, str] | None]

CONTROL = ("/v1/journal", "/v1/faults", "/v1/scenarios", "/v1/reset", "/v1/flows")


def is_control(path: str) -> bool:
    """Whether the path is one of those that steer fakecloud: not recorded, not rate limited, never failing."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in CONTROL)


@dataclass(frozen=True)
class Striker:
    """`owner_of` finds the (uid, cluster) of a load balancer's id; whose body may be read, `may_send` says."""

    faults: Faults
    owner_of: OwnerOf
    may_send: Callable[[web.Request], bool]
    read_body: Callable[[web.Request], Awaitable[bytes]]

    def middleware(self) -> Middleware:
        @web.middleware
        async def strike(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not request.path.startswith("/v1/") or is_control(request.path):
                return await handler(request)
            struck = self.faults.strike(await self._subject(request))
            if not struck:
                return await handler(request)
            request[NOTE].faults = tuple(fault.id for fault in struck)
            return await self._answer(request, handler, struck)

        return strike

    async def _answer(self, request: web.Request, handler: Handler, struck: Sequence[Armed]) -> web.StreamResponse:
        self._prepare(request, request[NOTE], struck)
        headers: dict[str, str] = {}
        await asyncio.sleep(self._latency(struck, "before"))
        for fault in struck:
            refusal = self._before(fault, headers)
            if refusal is not None:
                refusal.headers.update(headers)
                return refusal
        response = await handler(request)
        await asyncio.sleep(self._latency(struck, "after"))
        for fault in struck:
            lost = self._terminal(fault, "after")
            if lost is not None:
                response = lost
                break
        response.headers.update(headers)
        return response

    def _prepare(self, request: web.Request, note: Note, struck: Sequence[Armed]) -> None:
        """Tell the handler how old its reads are, and what becomes of its action."""
        resource = request.match_info.route.resource
        listing = resource is not None and "{" not in resource.canonical
        for fault in struck:
            effect = fault.spec.effect
            if isinstance(effect, StaleReadsFault) or (isinstance(effect, StaleListsFault) and listing):
                note.lag = max(note.lag, effect.seconds)
            if isinstance(effect, ActionFault):
                error = effect.message if effect.outcome == "error" else None
                note.order = ActionOrder(functools.partial(self.faults.holds, fault.id), error)

    def _before(self, fault: Armed, headers: dict[str, str]) -> web.StreamResponse | None:
        effect = fault.spec.effect
        if isinstance(effect, RateLimitFault):
            bucket, passes = self.faults.take(fault.id, effect)
            headers.update(bucket.headers)
            if not passes:
                headers["Retry-After"] = str(math.ceil(bucket.seconds_to_next))
                detail = f"{effect.requests_per_second:g} requests per second, bursts of {effect.burst}"
                return problem_response(errors.problem(429, "too-many-requests", detail).problem)
        if isinstance(effect, TokenExpiryFault):
            response = problem_response(errors.problem(401, "token-expired", "the token has expired").problem)
            response.headers["WWW-Authenticate"] = 'Bearer realm="fakecloud", error="invalid_token"'
            return response
        if isinstance(effect, OutageFault):
            if effect.answer != "status":
                return self._unanswered(fault, hang=effect.answer == "hang")
            return problem_response(errors.problem(503, "outage", "the API is down, by the order of a fault").problem)
        return self._terminal(fault, "before")

    def _terminal(self, fault: Armed, when: str) -> web.StreamResponse | None:
        effect = fault.spec.effect
        if isinstance(effect, StatusFault) and effect.when == when:
            return _ordered(effect)
        if isinstance(effect, HangFault | ResetFault) and effect.when == when:
            return self._unanswered(fault, hang=isinstance(effect, HangFault))
        return None

    def _unanswered(self, fault: Armed, *, hang: bool) -> Unanswered:
        return Unanswered(lambda: hang and self.faults.holds(fault.id))

    def _latency(self, struck: Sequence[Armed], when: str) -> float:
        effects = (fault.spec.effect for fault in struck)
        draw = self.faults.chance.draw
        return sum(seconds_of(one, draw) for one in effects if isinstance(one, LatencyFault) and one.when == when)

    async def _subject(self, request: web.Request) -> Subject:
        uid, cluster = await self._owner(request) if self.faults.needs_owner() else (None, None)
        return Subject(method=request.method, path=request.path, owner=uid, cluster=cluster)

    async def _owner(self, request: web.Request) -> tuple[str | None, str | None]:
        """Whose call it is: by the query, the load balancer in the path, or the body."""
        if "owner" in request.query or "cluster" in request.query:
            return request.query.get("owner"), request.query.get("cluster")
        if (load_balancer_id := request.match_info.get("id")) is not None:
            return self.owner_of(load_balancer_id) or (None, None)
        if not self.may_send(request):
            return None, None
        try:
            owner = from_json(await self.read_body(request))["owner"]
            return _text(owner, "uid"), _text(owner, "cluster")
        except (ValueError, KeyError, TypeError, AttributeError, errors.ProblemError):
            # Not a load balancer's body, or none that the handler will take: nobody's call.
            return None, None


def _text(owner: Mapping[str, Any], name: str) -> str | None:
    value = owner.get(name)
    return value if isinstance(value, str) else None


def _ordered(effect: StatusFault) -> web.Response:
    if effect.body is None:
        response = problem_response(errors.problem(effect.status, "ordered", "a fault orders this answer").problem)
    elif isinstance(effect.body, str):
        response = web.Response(status=effect.status, text=effect.body)
    else:
        response = web.Response(status=effect.status, text=json.dumps(effect.body), content_type="application/json")
    if effect.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(math.ceil(effect.retry_after_seconds))
    return response
