"""The composition root: makes every object, and owns the order of start and shutdown."""

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import random
import resource
import secrets
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TextIO, cast

from aiohttp import web

from fakecloud.api.clients import Clients
from fakecloud.api.operations import Services
from fakecloud.api.server import application
from fakecloud.cloud.cloud import Cloud, Surroundings
from fakecloud.cloud.store import MemoryStore, SqliteStore
from fakecloud.config import Settings
from fakecloud.dataplane.delivery import Delivery
from fakecloud.dataplane.flowlog import FlowLog
from fakecloud.dataplane.netlink import Netlink, NetlinkError
from fakecloud.dataplane.proxy.addresses import InterfaceAddresses, PresentAddresses
from fakecloud.dataplane.proxy.context import Limits
from fakecloud.dataplane.proxy.plane import Plane
from fakecloud.dataplane.routed.direct import DirectPlane
from fakecloud.dataplane.routed.nftables import Firewall, FirewallError
from fakecloud.descriptors import Descriptors
from fakecloud.faults.registry import Chance, Faults
from fakecloud.journal import Journal
from fakecloud.state.policy import AddressMode

logger = logging.getLogger(__name__)

# Seconds that running requests get at shutdown, and between attempts to open a port that could not be had.
_GRACE = 1.0
_REOPEN_EVERY = 5


class StartError(Exception):
    """fakecloud can't serve as configured; the message says why and what to do."""


@dataclass(frozen=True)
class Serving:
    """A fakecloud that answers."""

    url: str
    cloud: Cloud


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Serving]:
    """
    Serve the API and the data plane inside the block; afterwards every socket and the state file are closed.

    Raises:
        StartError: the API's address and port can't be had.
        StoreError: the state file can't be used.
    """
    store = MemoryStore() if settings.state is None else SqliteStore(settings.state)
    log_file = _open_flow_log(settings.flow_log)
    flows = FlowLog(settings.flows_size, time.time, log_file)
    descriptors = _descriptors()
    limits = Limits(
        connect_timeout=settings.connect_timeout,
        connections=settings.max_connections,
        descriptors=descriptors.traffic,
        probes=descriptors.probes,
    )
    netlink = _netlink(settings)
    plane = _plane(settings, netlink, limits, flows)
    cloud = Cloud(settings, plane, Surroundings(store, _now, _new_id, time.monotonic))
    faults = Faults(settings.scenarios, Chance(time.monotonic, random.random), (plane, cloud))
    services = Services(cloud, Journal(settings.journal_size), faults, flows)
    clients = Clients(descriptors.strangers, settings.client_timeout)
    runner = web.AppRunner(application(settings, services, clients, _now), access_log=None, shutdown_timeout=_GRACE)
    listening: asyncio.Server | None = None
    upkeep: asyncio.Task[None] | None = None
    try:
        # Load balancers serve before the API answers: who can ask may also connect.
        await cloud.open()
        await runner.setup()
        # There is one once it is set up.
        connection = partial(clients.connection, cast(web.Server, runner.server))
        listening = await _listen(connection, settings, descriptors.strangers)
        upkeep = asyncio.create_task(_keep_up(cloud, flows))
        yield Serving(_url(listening), cloud)
    finally:
        if upkeep is not None:
            upkeep.cancel()
        faults.clear()
        if listening is not None:
            listening.close()
        await runner.cleanup()
        await cloud.close()
        await plane.close()
        if netlink is not None:
            netlink.close()
        store.close()
        flows.close()


async def serve(
    settings: Settings,
    announced: Callable[[str], contextlib.AbstractContextManager[None]],
    *,
    until_stdin_ends: bool = False,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP, or the end of standard input; `announced`, of the API's URL, holds while it answers."""
    _allow_many_sockets()
    stop = asyncio.Event()
    if until_stdin_ends:
        _at_the_end_of_stdin(stop.set)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup's wish is to stay.
        if signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(settings) as serving:
        _rarely_collect_garbage()
        logger.info("serving", extra={"url": serving.url})
        with announced(serving.url):
            await stop.wait()
        logger.info("stopping")


def _at_the_end_of_stdin(end: Callable[[], None]) -> None:
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        if not os.read(stdin, 65_536):
            loop.remove_reader(stdin)
            end()

    try:
        loop.add_reader(stdin, read)
    except OSError as error:
        raise StartError(f"--until-stdin-ends: standard input is no pipe: {error.strerror or error}") from error


async def _listen(connection: Callable[[], asyncio.Protocol], settings: Settings, backlog: int) -> asyncio.Server:
    try:
        return await asyncio.get_running_loop().create_server(
            connection, settings.listen, settings.port, backlog=backlog
        )
    except OSError as error:
        raise StartError(
            f"can't listen on {settings.listen} port {settings.port}: {error.strerror or error}; "
            "choose another with --port (0 takes any free one)"
        ) from error


def _url(listening: asyncio.Server) -> str:
    host, port = listening.sockets[0].getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _keep_up(cloud: Cloud, flows: FlowLog) -> None:
    for second in itertools.count(1):
        await asyncio.sleep(1)
        flows.flush()
        if second % _REOPEN_EVERY == 0:
            await cloud.reopen_failing()


def _descriptors() -> Descriptors:
    used = len(list(Path("/proc/self/fd").iterdir()))
    return Descriptors.shared(resource.getrlimit(resource.RLIMIT_NOFILE)[0], used)


def _netlink(settings: Settings) -> Netlink | None:
    if settings.addresses is not AddressMode.INTERFACE:
        return None
    try:
        return Netlink(settings.interface)
    except NetlinkError as error:
        raise StartError(str(error)) from error


def _plane(settings: Settings, netlink: Netlink | None, limits: Limits, flows: FlowLog) -> Delivery:
    if settings.delivery == "direct" and netlink is not None:
        try:
            return DirectPlane(settings.target_networks, netlink, Firewall(), limits.probes)
        except FirewallError as error:
            raise StartError(str(error)) from error
    addresses = PresentAddresses() if netlink is None else InterfaceAddresses(netlink)
    return Plane(settings.target_networks, limits, addresses, flows)


def _open_flow_log(path: Path | None) -> TextIO | None:
    try:
        return None if path is None else path.open("a", encoding="utf-8")
    except OSError as error:
        raise StartError(f"--flow-log {path}: {error.strerror}; give a file in a writable directory") from error


def _rarely_collect_garbage() -> None:
    """Connections leave no cycles behind; looking for some every few of them costs a tenth of their time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _allow_many_sockets() -> None:
    """Every connection takes two sockets: use what the system allows, not the shell's default of 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _new_id() -> str:
    return f"lb-{secrets.token_hex(5)}"
