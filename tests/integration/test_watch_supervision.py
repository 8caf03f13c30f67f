"""
A kopf of which a part dies, that does not end, or that hangs: another one takes over, whatever the first one says of itself.

The watch runs in the test's process here, so that the test can lay hands on kopf's loop; the API server is the genuine one.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ccm_lb.kube.connect import connect
from ccm_lb.kube.watch import STUCK, Watch, WatchOptions
from ccm_lb.redaction import Secrets
from tests.controlplane.kube import Kube
from tests.harness import objects

SLOW = 10.0  # seconds more than is promised, for a machine that does other work
HEALED = 10.0 + SLOW  # seconds after which events have to flow again


class Sessions:
    """Those of the controller, which remember the loop that kopf logged in in."""

    def __init__(self, api: Any) -> None:
        self._api = api
        self.server: str = api.server
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.made: list[aiohttp.ClientSession] = []

    def kopf_session(self) -> aiohttp.ClientSession:
        self.loops.append(asyncio.get_running_loop())
        self.made.append(self._api.kopf_session())
        return self.made[-1]


class Watched:
    def __init__(self, kube: Kube, namespace: str, sessions: Sessions) -> None:
        self._kube = kube
        self._namespace = namespace
        self.sessions = sessions
        self.seen: set[str] = set()
        self.breaks = 0
        self._numbers = itertools.count(1)
        self.sut = Watch(sessions, WatchOptions(streaming_lists=True), self._event, lambda: None, self._broke)

    def _event(self, resource: str, kind: str | None, obj: Mapping[str, Any]) -> None:
        self.seen.add(f"{resource} {obj['metadata']['name']}")

    def _broke(self) -> None:
        self.breaks += 1

    async def events_flow(self, within: float) -> None:
        """A new Service and a new node are seen."""
        name = f"w{next(self._numbers)}"
        await self._kube.create("services", objects.service(name, type="ClusterIP"), self._namespace)
        await self._kube.create("nodes", objects.node(name, "127.85.255.1"))
        try:
            async with asyncio.timeout(within):
                while not {f"services {name}", f"nodes {name}"} <= self.seen:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"after {within:g} s of {name} only {self.seen}: {self.sut.failure()}") from None

    async def all_is_well(self) -> None:
        async with asyncio.timeout(HEALED):
            while self.sut.failure() is not None:
                await asyncio.sleep(0.05)

    async def in_kopf(self, call: Callable[[], Any]) -> Any:
        """The result of a call in the loop of the kopf that runs."""
        while True:
            done: concurrent.futures.Future[Any] = concurrent.futures.Future()
            with contextlib.suppress(RuntimeError, TimeoutError):  # it ended in this very moment
                self.sessions.loops[-1].call_soon_threadsafe(answer, done, call)
                return await asyncio.wait_for(asyncio.wrap_future(done), 1.0)
            await asyncio.sleep(0.05)


@pytest.fixture
async def watched(kube: Kube, namespace: str, kubeconfig: Path) -> AsyncIterator[Watched]:
    api = await connect(kubeconfig, None, user_agent="ccm-lb/test", secrets=Secrets())
    watched = Watched(kube, namespace, Sessions(api))
    watched.sut.start()
    await watched.events_flow(within=60)
    yield watched
    await watched.sut.stop(1.0)
    await api.close()
    for thread in threading.enumerate():
        if thread.name == "kopf":
            await asyncio.to_thread(thread.join, 30)


def answer(done: concurrent.futures.Future[Any], call: Callable[[], Any]) -> None:
    done.set_result(call())


def names() -> list[str]:
    return sorted(task.get_name() for task in asyncio.all_tasks() if not task.get_name().startswith("Task-"))


def kill(name: str) -> None:
    for task in asyncio.all_tasks():
        if task.get_name() == name:
            task.cancel()


async def test_whatever_part_of_kopf_dies_alone_events_flow_again(watched: Watched) -> None:
    parts = await watched.in_kopf(names)
    assert {"reflector of services", "reflector of nodes", "credentials retriever", "the command"} <= set(parts)
    for part in parts:
        began = time.monotonic()
        await watched.in_kopf(functools.partial(kill, part))
        try:
            await watched.events_flow(HEALED)
        except AssertionError as error:
            raise AssertionError(f"{part}: {error}") from None
        # Until the next one is killed it has to be there.
        async with asyncio.timeout(HEALED):
            while part not in await watched.in_kopf(names) and time.monotonic() - began < 3:
                await asyncio.sleep(0.05)
    await watched.all_is_well()


async def hold_on(until: asyncio.Event) -> None:
    while not until.is_set():
        with contextlib.suppress(asyncio.CancelledError):
            await until.wait()


async def test_a_kopf_that_does_not_end_is_left_behind(watched: Watched) -> None:
    first, released, tasks = watched.sessions.loops[-1], asyncio.Event(), []
    await watched.in_kopf(lambda: tasks.append(asyncio.create_task(hold_on(released))))
    try:
        await watched.in_kopf(lambda: kill("namespace observer"))
        async with asyncio.timeout(HEALED):
            while not watched.breaks:
                await asyncio.sleep(0.02)
        await watched.events_flow(HEALED)
        assert first.is_running(), "it was to hang, or nothing is shown"
        assert watched.breaks == 1
        await watched.all_is_well()
    finally:
        first.call_soon_threadsafe(released.set)


async def test_a_kopf_whose_loop_is_stuck_is_left_behind(watched: Watched) -> None:
    released = threading.Event()
    watched.sessions.loops[-1].call_soon_threadsafe(released.wait, 60)
    try:
        await watched.events_flow(STUCK + HEALED)
        await watched.all_is_well()
    finally:
        released.set()


async def test_a_session_that_is_closed_is_replaced(watched: Watched) -> None:
    loop, session = watched.sessions.loops[-1], watched.sessions.made[-1]
    asyncio.run_coroutine_threadsafe(session.close(), loop)
    await watched.events_flow(HEALED)
    assert watched.sessions.made[-1] is not session
