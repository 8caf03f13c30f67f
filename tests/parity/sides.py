"""One side of the comparison: an API server, a controller as a process, its scripted cloud, and everything that can be seen of them."""

import asyncio
import collections
import contextlib
import dataclasses
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.controlplane.kube import Kube, KubeError
from tests.controlplane.process import Process
from tests.controlplane.server import ControlPlane, free_ports
from tests.harness.stack import SETTLE, apply_access
from tests.parity import backend
from tests.parity.cloud import ScriptedCloud
from tests.parity.observe import Occurrence

Json = dict[str, Any]

QUIET = 1.0  # seconds without a write or a cloud call
BARRIER = "barrier"  # a namespace
DUAL_STACK = ("--service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/108",)
_PASSES = 4
_WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class SilenceError(AssertionError):
    """A side does not come to rest, or does not go on; the text holds the end of its log."""


@dataclasses.dataclass
class Mark:
    """Where a namespace's records stood when a step began."""

    calls: int
    events: int


class Side:
    """`kind` is `go` or `ccm`; made by `running`."""

    def __init__(
        self, kind: str, plane: ControlPlane, kube: Kube, cloud: ScriptedCloud, process: Process, metrics: str
    ) -> None:
        self.kind, self.plane, self.kube, self.cloud = kind, plane, kube, cloud
        self._metrics = metrics
        self._process = process
        self._events: dict[str, list[Occurrence]] = collections.defaultdict(list)
        self._counts: dict[str, int] = {}  # of each Event object, by UID
        self._last_write: dict[str, float] = {}
        self._round = self._passes = 0
        self._barrier = ""
        self._lock = asyncio.Lock()
        self._took = 0.0

    # ---- the controller

    def start(self) -> None:
        self._passes = 0  # what is there at the start is not told by everybody
        self._process.start()

    async def stop(self) -> None:
        """In good order, as a rolling update does it."""
        await self._process.stop(grace=20.0)

    async def begin(self) -> None:
        """Wait until the controller works."""
        await self.kube.create("namespaces", {"metadata": {"name": BARRIER}})
        await self.barrier()

    async def barrier(self) -> float:
        """
        Wait until the controller has seen what was written until now, and said what it has to say; returns how many seconds that took.

        One more Service comes through the same watch, the same queue and the same recorder of events. So whatever was written before has
        been begun when that one reaches the cloud, and was told when that one's event is there. Those who wait at the same time share it.
        """
        arrival = self._round
        async with self._lock:
            if self._round == arrival:  # else one began after we came, and has passed
                self._took = await self._pass()
        return self._took

    async def _pass(self) -> float:
        began = time.monotonic()
        self._round += 1
        name, told = self._barrier, 0
        if self._passes % _PASSES == 0:
            # A new one now and then: client-go drops the events of an object that has had 25.
            if name:
                await self.kube.delete("services", name, BARRIER)
            name = self._barrier = f"b{self._round}"
            await self.kube.create("services", _barrier_service(name, self._round), BARRIER)
        else:
            told = self._ensured(name)
            patch = {"metadata": {"annotations": {"round": str(self._round)}}}
            await self.kube.patch("services", name, patch, BARRIER)
        self._passes += 1
        try:
            async with asyncio.timeout(SETTLE):
                await self.cloud.wait_round(BARRIER, self._round)
                while self._ensured(name) <= told:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise SilenceError(f"{self.kind} does nothing:\n{self._process.last_words()}") from None
        return time.monotonic() - began

    def _ensured(self, name: str) -> int:
        events = self._events[BARRIER]
        return sum(1 for one in events if one.service == name and one.reason == "EnsuredLoadBalancer")

    async def at_rest(self, namespaces: Sequence[str], retry: float = 5.0, quiet: float = QUIET) -> bool:
        """
        Wait until the controller has done all that it is going to do for these namespaces: no retry is pending, neither a call nor a
        write was seen for `quiet` seconds (longer on a slow machine), and whatever was still on its way then has come through.

        False if a call failed and no retry came, although the first is due after `retry` seconds and each later one after twice that.
        """
        quiet = max(quiet, 2 * await self.barrier())
        began = time.monotonic()
        deadline = began + 3 * SETTLE
        while time.monotonic() < deadline:
            now = time.monotonic()
            idle = now - max(began, *(self._activity(one) for one in namespaces))
            failed = max((n for one in namespaces for n in self.cloud.failures(one).values()), default=0)
            if failed and idle > retry * 2.0 ** (failed - 1) + 2.0 + quiet:
                return False
            if idle > quiet and not failed:
                await self.barrier()
                if all(self._activity(one) < now for one in namespaces):
                    return True
            await asyncio.sleep(0.05)
        raise SilenceError(f"{self.kind} does not come to rest in {namespaces}:\n{self._process.last_words()}")

    async def clear(self, namespace: str) -> None:
        """Remove the Services of a scenario that is over, so that they do not cost the next ones their time."""
        for service in await self.kube.list("services", namespace):
            name = service["metadata"]["name"]
            self.cloud.forget(namespace, name)
            with contextlib.suppress(KubeError):
                await self.kube.patch("services", name, {"metadata": {"finalizers": None}}, namespace)
            await self.kube.delete("services", name, namespace)

    def _activity(self, namespace: str) -> float:
        return max(self._last_write.get(namespace, 0.0), self.cloud.last_activity(namespace))

    # ---- what was seen

    async def metrics(self) -> str:
        """What its Prometheus endpoint says, with a certificate that nobody signed, on both sides."""
        async with aiohttp.ClientSession() as session, session.get(self._metrics, ssl=False) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()

    def mark(self, namespace: str) -> Mark:
        return Mark(len(self.cloud.calls(namespace)), len(self._events[namespace]))

    def events_since(self, namespace: str, mark: Mark) -> list[Occurrence]:
        return self._events[namespace][mark.events :]

    async def follow(self) -> None:
        """Take note of writes and of Kubernetes events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_writes())
            group.create_task(self._follow_events())

    async def _follow_writes(self) -> None:
        tail = self.plane.audit_tail()
        while True:
            for event in tail.read():
                if event["verb"] in _WRITES:
                    self._last_write[event.get("objectRef", {}).get("namespace", "")] = time.monotonic()
            await asyncio.sleep(0.05)

    async def _follow_events(self) -> None:
        version = "0"
        while True:
            with contextlib.suppress(aiohttp.ClientError, KubeError):
                async for change in self.kube.watch("events", resourceVersion=version):
                    if change["type"] == "ERROR":
                        break
                    version = change["object"]["metadata"]["resourceVersion"]
                    self._take(change["type"], change["object"])
            await asyncio.sleep(0.2)

    def _take(self, change: str, event: Json) -> None:
        subject = event["involvedObject"]
        if change == "DELETED" or subject.get("kind") != "Service":
            return
        uid, count = event["metadata"]["uid"], event.get("count") or 1
        times = count - self._counts.get(uid, 0)
        self._counts[uid] = count
        one = Occurrence(
            subject["name"], event["type"], event["reason"], event["message"], event["source"].get("component", "")
        )
        self._events[subject["namespace"]] += [one] * times


def _barrier_service(name: str, number: int) -> Json:
    port = {"name": "b", "port": 80, "protocol": "TCP"}
    metadata = {"name": name, "annotations": {"round": str(number)}}
    return {"metadata": metadata, "spec": {"type": "LoadBalancer", "ports": [port], "selector": {"a": "b"}}}


def command(kind: str, binaries: Mapping[str, Path], kubeconfig: Path, port: int, *, quick: bool) -> list[str]:
    """The command line of a controller; `port` serves its metrics, `quick` has small retry delays."""
    common = [f"--kubeconfig={kubeconfig}", "--cloud-provider=parity", "--leader-elect=false", "-v=2"]
    common += ["--concurrent-service-syncs=64", "--bind-address=127.0.0.1", "--cluster-name=parity"]
    if kind == "go":
        return [
            str(binaries["peer-quick" if quick else "peer"]),
            *common,
            f"--secure-port={port}",
            f"--cert-dir={kubeconfig.parent}",
            "--controllers=service-lb-controller",
            "--configure-cloud-routes=false",
            *("--authentication-skip-lookup", "--authorization-always-allow-paths=/metrics"),
            *("--kube-api-qps=2000", "--kube-api-burst=2000"),
        ]
    module = "tests.parity.quick" if quick else "ccm_lb"
    # The comparison is about what is done; the pause for which node changes are gathered has a row of its own in the page.
    return [
        sys.executable,
        "-m",
        module,
        "run",
        *common,
        f"--secure-port={port}",
        "--port=0",
        "--node-sync-debounce=0.2",
    ]


@contextlib.asynccontextmanager
async def running(
    kind: str, binaries: Mapping[str, Path], directory: Path, *, quick: bool = False, flags: Sequence[str] = ()
) -> AsyncIterator[Side]:
    """A side with its controller under way; it ends with the block."""
    async with contextlib.AsyncExitStack() as stack:
        flags = ["--service-node-port-range=10000-39999", *flags]
        plane = await stack.enter_async_context(
            ControlPlane(binaries, directory=directory / kind, apiserver_flags=flags)
        )
        kube = await stack.enter_async_context(plane.kube())
        await apply_access(kube)
        kubeconfig = plane.kubeconfig
        if kind == "ccm":
            kubeconfig = await plane.service_account_kubeconfig("kube-system", "ccm-lb")
        cloud = await stack.enter_async_context(ScriptedCloud())
        path = f"{backend.entry_point()}:{Path.cwd()}"
        environment = ["/usr/bin/env", f"PEER_CLOUD={cloud.url}", f"PYTHONPATH={path}"]
        log, (port,) = directory / f"{kind}.log", free_ports(1)
        process = Process(kind, [*environment, *command(kind, binaries, kubeconfig, port, quick=quick)], log)
        side = Side(kind, plane, kube, cloud, process, f"https://127.0.0.1:{port}/metrics")
        stack.push_async_callback(process.stop)
        following = asyncio.create_task(side.follow())
        stack.push_async_callback(_ended, following)
        side.start()
        await side.begin()
        yield side


async def _ended(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
