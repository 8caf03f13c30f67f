"""The aiohttp application: routes made from the operations."""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from fakecloud.api import calls, inventory, loadbalancers, openapi
from fakecloud.api.middlewares import Recorder, bearer_token, problems
from fakecloud.api.operations import NOTE, SERVICES, Exchange, NoBody, Operation, Services
from fakecloud.api.requests import parse_body, parse_query
from fakecloud.config import Settings

OPERATIONS: tuple[Operation[Any, Any], ...] = (*loadbalancers.OPERATIONS, *inventory.OPERATIONS, *calls.OPERATIONS)


def application(settings: Settings, services: Services, now: Callable[[], str]) -> web.Application:
    """Everything that HTTP clients see."""
    app = web.Application(
        middlewares=[Recorder(services.journal, now).middleware(), problems, bearer_token(settings.token)],
        client_max_size=settings.max_body,
    )
    app[SERVICES] = services
    for operation in OPERATIONS:
        app.router.add_route(operation.method, operation.path, _handler(operation))
    described = json.dumps(openapi.document(OPERATIONS))

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def openapi_json(_: web.Request) -> web.Response:
        return web.Response(text=described, content_type="application/json")

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/openapi.json", openapi_json)
    return app


def _handler(operation: Operation[Any, Any]) -> Callable[[web.Request], Any]:
    async def handle(request: web.Request) -> web.Response:
        exchange = Exchange(
            services=request.app[SERVICES],
            body=NoBody() if operation.body is NoBody else parse_body(operation.body, await request.read()),
            query=parse_query(operation.query, request.query),
            path=request.match_info,
            headers=request.headers,
            note=request[NOTE],
        )
        reply = await operation.handler(exchange)
        if reply.body is None:
            return web.Response(status=reply.status, headers=reply.headers)
        return web.Response(
            status=reply.status,
            text=reply.body.model_dump_json(by_alias=True),
            content_type="application/json",
            headers=reply.headers,
        )

    return handle
