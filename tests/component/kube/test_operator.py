"""
What is used of kopf beyond its public interface, held against the pinned version.

A failure here says that kopf changed: read what became of the part, then change `ccm_lb/kube/operator.py`.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web
from kopf._cogs.clients import api, auth, errors
from kopf._cogs.structs import credentials, references
from kopf._core.intents import registries

from ccm_lb.kube import operator
from ccm_lb.kube.operator import WatchOptions
from ccm_lb.kube.reflector import Pulse
from tests.component.recording import RecordingServer, serve

PINNED = "1.45.2"


def test_kopf_is_the_version_that_was_read() -> None:
    assert importlib.metadata.version("kopf") == PINNED, "read what changed, then the tests below, then change this"


@pytest.mark.parametrize(
    ("function", "names"),
    [
        pytest.param(kopf.operator, {"_command", "insights", "stop_flag", "registry", "settings"}, id="kopf.operator"),
        pytest.param(api.request, {"method", "url", "settings", "timeout", "backoffs", "logger"}, id="api.request"),
        pytest.param(api.iter_jsonlines, {"content"}, id="api.iter_jsonlines"),
        pytest.param(references.Resource.get_url, {"params"}, id="Resource.get_url"),
        pytest.param(references.Selector.check, {"resource"}, id="Selector.check"),
        pytest.param(registries.WatchingRegistry.get_all_handlers, set(), id="get_all_handlers"),
    ],
)
def test_a_function_takes_what_it_is_called_with(function: Callable[..., Any], names: set[str]) -> None:
    assert names <= set(inspect.signature(function).parameters)


def test_insights_tell_when_the_resources_are_found_and_which() -> None:
    insights = references.Insights()
    assert not insights.ready_resources.is_set()
    assert insights.watched_resources == set()


def test_a_handler_is_found_by_its_selector() -> None:
    registry = kopf.OperatorRegistry()

    @kopf.on.event("v1", "services", registry=registry)
    async def on_service(**_: Any) -> None: ...

    (handler,) = registry._watching.get_all_handlers()
    assert handler.fn is on_service
    assert handler.selector is not None
    assert handler.selector.check(references.Resource("", "v1", "services"))
    assert not handler.selector.check(references.Resource("", "v1", "nodes"))


def test_a_resource_knows_its_url() -> None:
    resource = references.Resource("", "v1", "services", namespaced=True)
    assert resource.get_url(params={"watch": "true"}) == "/api/v1/services?watch=true"


def test_an_error_has_its_status_its_headers_and_its_message() -> None:
    error = errors.APIError({"message": "because"}, status=429, headers={"Retry-After": "3"})  # type: ignore[arg-type]
    assert (error.status, error.headers, error.message) == (429, {"Retry-After": "3"}, "because")


@pytest.fixture
async def server() -> AsyncIterator[RecordingServer]:
    server = RecordingServer(web.json_response({"kind": "Status", "message": "because"}, status=503))
    async with serve(server):
        yield server


@pytest.fixture
async def logged_in(server: RecordingServer) -> AsyncIterator[None]:
    async with aiohttp.ClientSession() as session:
        vault = credentials.Vault({"login": kopf.AiohttpSession(server=server.url, aiohttp_session=session)})
        token = auth.vault_var.set(vault)
        yield
        auth.vault_var.reset(token)


@pytest.mark.usefixtures("logged_in")
async def test_a_request_without_backoffs_is_sent_once(server: RecordingServer) -> None:
    with pytest.raises(errors.APIServerError):
        await api.request(
            "get", "/api/v1/nodes", settings=operator.operator_settings(), backoffs=(), logger=operator._UNHEARD
        )
    assert len(server.seen) == 1


@pytest.mark.usefixtures("logged_in")
async def test_an_answer_is_read_line_by_line_however_long_a_line_is(server: RecordingServer) -> None:
    lines = [b'{"a":1}', b"x" * 3_000_000, b"the last one has no end"]
    server.answers = [web.Response(body=b"\n".join(lines))]
    response = await api.request(
        "get", "/api/v1/nodes", settings=operator.operator_settings(), backoffs=(), logger=operator._UNHEARD
    )
    async with response:
        assert [line async for line in api.iter_jsonlines(response.content)] == lines


# ---- the operator as a whole


class Cluster(RecordingServer):
    """Discovery, one Service and one node, and watches on which nothing happens."""

    def __init__(self) -> None:
        super().__init__(web.Response())
        self.lost: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if request.query.get("watch"):
            await asyncio.sleep(3600)
        if request.path == "/api":
            return web.json_response({"versions": ["v1"]})
        if request.path == "/apis":
            return web.json_response({"groups": []})
        if request.path == "/api/v1":
            kinds = {"services": ("Service", True), "nodes": ("Node", False), "pods": ("Pod", True)}
            verbs = ["list", "watch", "patch"]
            resources = [
                {"name": name, "kind": kind, "singularName": "", "namespaced": namespaced, "verbs": verbs}
                for name, (kind, namespaced) in kinds.items()
            ]
            return web.json_response({"resources": resources})
        name = request.path.rpartition("/")[2]
        items = [{"metadata": {"name": f"one of {name}", "resourceVersion": "5"}}]
        return web.json_response({"kind": "List", "items": items, "metadata": {"resourceVersion": "7"}})


class Sessions:
    def __init__(self, server: str) -> None:
        self.server = server

    def kopf_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession()


class Watcher:
    def __init__(self) -> None:
        self.pulses = {resource: Pulse.begin(asyncio.get_running_loop().time) for resource in operator.RESOURCES}
        self.told: set[str] = set()
        self.all = asyncio.Event()
        self.over = asyncio.Event()

    def deliver(self, resource: str, kind: str | None, obj: Mapping[str, Any]) -> None:
        self.told.add(f"{resource} {kind} {obj['metadata']['name']}")

    def listed(self, resource: str) -> None:
        self.told.add(f"{resource} listed")
        if len(self.told) == 4:
            self.all.set()

    def broke(self, resource: str) -> None:
        self.told.add(f"{resource} broke")

    def ended(self) -> None:
        self.over.set()


async def test_kopf_finds_the_resources_of_the_handlers_and_only_our_reflectors_watch_them() -> None:
    cluster, stop = Cluster(), asyncio.Event()
    async with serve(cluster), asyncio.timeout(20):
        watcher = Watcher()
        task = asyncio.create_task(operator.run(Sessions(cluster.url), WatchOptions("x=y"), watcher, stop))
        await watcher.all.wait()
        while len([one for one in cluster.seen if one.query.get("watch")]) < 2:
            await asyncio.sleep(0.01)
        stop.set()
        await task
        assert watcher.over.is_set()
    assert watcher.told == {
        "services None one of services",
        "services listed",
        "nodes None one of nodes",
        "nodes listed",
    }
    asked = [one.path_qs for one in cluster.seen if one.path not in ("/api", "/apis", "/api/v1")]
    assert sorted(asked) == sorted(
        [
            "/api/v1/services?fieldSelector=x%3Dy&limit=500",
            "/api/v1/nodes?limit=500",
            "/api/v1/services?fieldSelector=x%3Dy&resourceVersion=7&timeoutSeconds=8&watch=true&allowWatchBookmarks=true",
            "/api/v1/nodes?resourceVersion=7&timeoutSeconds=8&watch=true&allowWatchBookmarks=true",
        ]
    )
    assert {one.method for one in cluster.seen} == {"GET"}
