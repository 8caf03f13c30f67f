"""The aiohttp application: routes made from the operations."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import web

from fakecloud.api import actions, addresses, cloud, faults, inventory, journal, loadbalancers, metrics, openapi
from fakecloud.api.authentication import BearerToken
from fakecloud.api.bodies import Bodies
from fakecloud.api.clients import Clients
from fakecloud.api.faultinjection import Striker
from fakecloud.api.middlewares import Recorder, problems
from fakecloud.api.operations import NOTE, SERVICES, Exchange, NoBody, Operation, Services
from fakecloud.api.requests import parse_body, parse_query
from fakecloud.config import Settings
from fakecloud.models.base import Model

OPERATIONS: tuple[Operation[Any, Any], ...] = (
    *loadbalancers.OPERATIONS,
    *inventory.OPERATIONS,
    *addresses.OPERATIONS,
    *cloud.OPERATIONS,
    *actions.OPERATIONS,
    *faults.OPERATIONS,
    *journal.OPERATIONS,
)


def application(settings: Settings, services: Services, clients: Clients, now: Callable[[], str]) -> web.Application:
    """Everything that HTTP clients see."""
    token, bodies = BearerToken(settings.token), Bodies(settings.max_body, settings.client_timeout)
    app = web.Application(
        middlewares=[
            Recorder(services.journal, now, token.shown_by).middleware(),
            Striker(services.faults, _owners(services), token.shown_by, bodies.read).middleware(),
            problems,
            token.middleware(clients.knows),
        ],
        client_max_size=settings.max_body,
    )
    app[SERVICES] = services
    for operation in OPERATIONS:
        app.router.add_route(
            operation.method, operation.path, _handler(operation, bodies), expect_handler=_no_answer_yet
        )
    described = json.dumps(openapi.document(OPERATIONS))

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def openapi_json(_: web.Request) -> web.Response:
        return web.Response(text=described, content_type="application/json")

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/openapi.json", openapi_json)
    app.router.add_get("/metrics", metrics.handler(services))
    return app


def _owners(services: Services) -> Callable[[str], tuple[str, str] | None]:
    def owner_of(load_balancer_id: str) -> tuple[str, str] | None:
        found = services.cloud.state.load_balancers.get(load_balancer_id)
        owner = found.spec.owner if found is not None else None
        return None if owner is None else (owner.uid, owner.cluster)

    return owner_of


async def _no_answer_yet(_: web.Request) -> None:
    """A client that asks whether to send its body learns it when the body is wanted."""


def _handler(operation: Operation[Any, Any], bodies: Bodies) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.StreamResponse:
        exchange = Exchange(
            services=request.app[SERVICES],
            body=await _body(operation, request, bodies),
            query=parse_query(operation.query, request.query),
            path=request.match_info,
            headers=request.headers,
            note=request[NOTE],
        )
        reply = await operation.handler(exchange)
        if reply.stream is not None:
            return await _streamed(request, reply.stream)
        if reply.body is None:
            return web.Response(status=reply.status, headers=reply.headers)
        return web.Response(
            status=reply.status,
            text=reply.body.model_dump_json(by_alias=True),
            content_type="application/json",
            headers=reply.headers,
        )

    return handle


async def _body(operation: Operation[Any, Any], request: web.Request, bodies: Bodies) -> Model:
    if operation.body is NoBody:
        return NoBody()
    content = await bodies.read(request)
    model: type[Model] = operation.body
    return parse_body(model, b"{}" if operation.body_optional and not content else content)


async def _streamed(request: web.Request, stream: AsyncIterator[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    # The client that leaves ends it.
    with contextlib.suppress(ConnectionError):
        async for chunk in stream:
            await response.write(chunk)
    return response
