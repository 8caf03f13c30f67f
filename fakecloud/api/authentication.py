"""Who may ask."""

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from fakecloud import errors
from fakecloud.api.responses import problem_response

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class BearerToken:
    """The one token, which all under /v1 and the metrics need."""

    token: str

    def shown_by(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        # Compared in constant time, byte for byte.
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.encode(errors="surrogateescape"), self.token.encode()
        )

    def middleware(self, knows: Callable[[web.RequestHandler], None]) -> Middleware:
        """`knows` is told of each connection that has shown the token."""

        @web.middleware
        async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path == "/metrics" or request.path == "/v1" or request.path.startswith("/v1/"):
                if not self.shown_by(request):
                    return _refusal()
                knows(request.protocol)
            return await handler(request)

        return authenticate


def _refusal() -> web.Response:
    refused = errors.problem(
        401,
        "unauthorized",
        "this needs the header Authorization: Bearer <token> with the token fakecloud was started with",
    )
    response = problem_response(refused.problem)
    response.headers["WWW-Authenticate"] = 'Bearer realm="fakecloud"'
    return response
