"""
fakecloud from Python: `Client`, and `AsyncClient` with the same methods to await; one method for each request of the API.

    from fakecloud.client import Client

    with Client(url, token) as cloud:
        created = cloud.create_load_balancer({"name": "web", "owner": {...}, "listeners": [...], "targets": [...]})
        cloud.wait_for(created.id, healthy=2)

Answers are the models of the API (`fakecloud.models`), errors are `FakecloudError`. docs/howto/fakecloud-python.md shows more.
"""

from fakecloud.client.asynchronous import AsyncClient
from fakecloud.client.errors import (
    ConflictError,
    FakecloudError,
    InvalidRequestError,
    NotFoundError,
    RefusedError,
    StaleError,
    UnauthorizedError,
    UnreachableError,
    WaitTimeoutError,
)
from fakecloud.client.synchronous import Client

__all__ = [
    "AsyncClient",
    "Client",
    "ConflictError",
    "FakecloudError",
    "InvalidRequestError",
    "NotFoundError",
    "RefusedError",
    "StaleError",
    "UnauthorizedError",
    "UnreachableError",
    "WaitTimeoutError",
]
