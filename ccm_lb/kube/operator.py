"""
kopf: an operator that logs in, finds the resources that its handlers are for, and streams them. The only file that knows it.

In the place of kopf's own watchers one reflector for each resource runs inside. kopf has a queue, a task and a chain of processing for
each object, whose order, retries and concurrency are the workqueue's here, and where one of its watchers fails, all of them end.
Nothing of it writes to the cluster: no finalizer, no annotation, no event. What is used beyond kopf's public interface is
held against the pinned version by tests/component/kube/test_operator.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Protocol

import aiohttp
import kopf
from kopf._cogs.clients import api, errors
from kopf._cogs.structs import references

from ccm_lb.errors import ApiError, ApiUnreachableError
from ccm_lb.http import pacing
from ccm_lb.kube.reflector import Json, Pulse, Reflector

SERVICES, NODES = "services", "nodes"
RESOURCES = (SERVICES, NODES)

_DISCOVERY_TIMEOUT = 5.0  # seconds for each request in which kopf learns what resources there are
_DISCOVERY_PAUSES = (0.5, 1.0, 2.0, 2.0, 2.0)  # seconds between the attempts of one
_CLOSING = 0.1  # seconds in which connections that were closed are gone
_NO_TIMEOUT = aiohttp.ClientTimeout()  # the reflector knows how long to wait for what
# For peering, which is off. Unless it is told, kopf asks for the names of the user, whom an image's uid has none for, and of the host.
_IDENTITY: Any = "ccm-lb"  # a type of kopf's own, which it does not export
_UNHEARD = logging.Logger("kopf", logging.CRITICAL)  # the reflector says what fails


class SessionFactory(Protocol):
    """Where kopf gets its connections from; called in kopf's thread, once for each login."""

    @property
    def server(self) -> str: ...

    def kopf_session(self) -> aiohttp.ClientSession: ...


class Watcher(Protocol):
    """Who is told, in kopf's loop; `pulses` are by resource."""

    @property
    def pulses(self) -> Mapping[str, Pulse]: ...

    def deliver(self, resource: str, kind: str | None, obj: Mapping[str, Any]) -> None:
        """An event of that type; None is an object of a list."""
        ...

    def listed(self, resource: str) -> None:
        """A list of the resource was delivered to its end: what it did not show is gone."""
        ...

    def broke(self, resource: str) -> None:
        """The watch of the resource broke, and is opened anew."""
        ...

    def ended(self) -> None:
        """Nothing more will come, however long kopf takes to end."""
        ...


@dataclasses.dataclass(frozen=True)
class WatchOptions:
    """`service_selector`: a field selector for Services, empty for all; `streaming_lists`: the server has them (1.34)."""

    service_selector: str = ""
    streaming_lists: bool = False


def operator_settings() -> kopf.OperatorSettings:
    """The settings of kopf for watching and nothing else."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None  # otherwise kopf schedules a SIGKILL of this process
    settings.networking.request_timeout = _DISCOVERY_TIMEOUT
    settings.networking.error_backoffs = _DISCOVERY_PAUSES
    return settings


async def run(sessions: SessionFactory, options: WatchOptions, watcher: Watcher, stop: asyncio.Event) -> None:
    """
    Run kopf until `stop`, or until something in it ends. Raises what kopf raises.

    Belongs into a loop of its own: when kopf ends, it cancels every task that was created after its start.
    """
    registry, insights, settings = kopf.OperatorRegistry(), references.Insights(), operator_settings()
    opened: list[aiohttp.ClientSession] = []

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        opened.append(sessions.kopf_session())
        return kopf.AiohttpSession(server=sessions.server, aiohttp_session=opened[-1])

    @kopf.on.event("v1", SERVICES, registry=registry)
    async def on_service(event: Any, **_: Any) -> None:
        watcher.deliver(SERVICES, event["type"], event["object"])

    @kopf.on.event("v1", NODES, registry=registry)
    async def on_node(event: Any, **_: Any) -> None:
        watcher.deliver(NODES, event["type"], event["object"])

    async def multiplex() -> None:
        try:
            await insights.ready_resources.wait()
            reflectors = [
                _reflector(one, registry, settings, options, watcher)
                for one in insights.watched_resources
                if one.plural in watcher.pulses
            ]
            await _until_one_ends(reflectors)
        finally:
            watcher.ended()

    try:
        await kopf.operator(
            registry=registry,
            insights=insights,
            settings=settings,
            clusterwide=True,
            standalone=True,
            identity=_IDENTITY,
            stop_flag=stop,
            _command=multiplex(),
        )
    finally:
        for session in opened:  # kopf closes them, unless the part of it that does so was the one that died
            await session.close()
        await asyncio.sleep(_CLOSING)


def _reflector(
    resource: references.Resource,
    registry: kopf.OperatorRegistry,
    settings: kopf.OperatorSettings,
    options: WatchOptions,
    watcher: Watcher,
) -> Reflector:
    name = resource.plural
    registered = registry._watching.get_all_handlers()
    handlers = [one.fn for one in registered if one.selector and one.selector.check(resource)]
    selector = {"fieldSelector": options.service_selector} if name == SERVICES and options.service_selector else {}
    return Reflector(
        name,
        _Requests(resource, settings),
        selector,
        _Listener(name, handlers, watcher),
        watcher.pulses[name],
        streaming_lists=options.streaming_lists,
    )


class _Listener:
    """Hands a resource's events to its handlers."""

    def __init__(self, resource: str, handlers: Collection[Any], watcher: Watcher) -> None:
        self._resource = resource
        self._handlers = handlers
        self._watcher = watcher

    async def deliver(self, kind: str | None, obj: Json) -> None:
        for handler in self._handlers:
            await handler(event={"type": kind, "object": obj})

    def listed(self) -> None:
        self._watcher.listed(self._resource)

    def broke(self) -> None:
        self._watcher.broke(self._resource)


async def _until_one_ends(reflectors: Collection[Reflector]) -> None:
    """A reflector ends only by somebody else's hand; the others are not worth more than a clean start then."""
    tasks = [asyncio.create_task(one.run(), name=f"reflector of {one.resource}") for one in reflectors]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Requests:
    """Requests for one resource, over the session that kopf is logged in with."""

    def __init__(self, resource: references.Resource, settings: kopf.OperatorSettings) -> None:
        self._resource = resource
        self._settings = settings

    @contextlib.asynccontextmanager
    async def get(self, params: Mapping[str, str]) -> AsyncIterator[_Answer]:
        url = self._resource.get_url(params=dict(params))
        try:
            response = await api.request(
                "get", url, settings=self._settings, timeout=_NO_TIMEOUT, backoffs=(), logger=_UNHEARD
            )
            async with response:
                yield _Answer(response)
        except errors.APIError as error:
            message = f"{error.status} {error.message or error.args[:1] or 'no message'}"
            raise ApiError(message, status=error.status, retry_after=pacing.retry_after(error.headers)) from error
        except (aiohttp.ClientError, errors.APISessionClosed, OSError) as error:
            raise ApiUnreachableError(f"the connection failed: {str(error) or type(error).__name__}") from error


class _Answer:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    def lines(self) -> AsyncIterator[bytes]:
        return api.iter_jsonlines(self._response.content)

    async def read(self) -> bytes:
        return await self._response.read()
