"""The controller as a process, as the image and the Deployment start it."""

import asyncio
import signal
from pathlib import Path
from typing import Self

import aiohttp

from tests.controlplane.process import Process
from tests.controlplane.server import free_ports
from tests.harness import pod


class Controller:
    """
    One replica, started again and again with the same flags; `async with` kills it in the end.

    Each start has a log line of its own before it, so that a log of many lives can be read.
    """

    def __init__(
        self,
        directory: Path,
        kubeconfig: Path,
        cloud_config: Path,
        *flags: str,
        name: str = "ccm-lb",
        mounts: pod.Mounts | None = None,
    ) -> None:
        told = ("--cloud-provider=fakecloud", f"--cloud-config={cloud_config}", f"--kubeconfig={kubeconfig}", "-v=2")
        self._make(directory, name, mounts or pod.Mounts(), "run", *told, *flags)

    @classmethod
    def in_pod(cls, directory: Path, mounts: pod.Mounts, *arguments: str) -> Self:
        """A replica that finds cluster and cloud as a pod does: by what `mounts` puts there."""
        made = cls.__new__(cls)
        made._make(directory, "ccm-lb", mounts, *arguments)
        return made

    def _make(self, directory: Path, name: str, mounts: pod.Mounts, *arguments: str) -> None:
        (self.port,) = free_ports(1)
        self.log = directory / f"{name}.log"
        # The machine is shared: a port of its own, and fakecloud's loads are on loopback.
        shared = ("--bind-address=127.0.0.1", f"--port={self.port}", "--allow-addresses=loopback")
        self._process = Process(name, pod.command(arguments[0], *shared, *arguments[1:], mounts=mounts), self.log)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._process.stop()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.exit_code

    def start(self) -> None:
        """Start it, without waiting."""
        self._process.start()

    async def start_ready(self, timeout: float = 90.0) -> None:
        """Start it and wait until /readyz is green."""
        self.start()
        await self.wait_ready(timeout)

    async def wait_ready(self, timeout: float = 90.0, *, revived: bool = False) -> None:
        """
        Wait until /readyz is green; AssertionError with the end of the log when time is up, or the process ends and nobody is there
        who starts it again (`revived`).
        """
        async with aiohttp.ClientSession() as session:
            try:
                async with asyncio.timeout(timeout):
                    while (await self.get("/readyz", session))[0] != 200:
                        assert revived or self.pid is not None, (
                            f"the controller ended with {self.exit_code}:\n{self.last_words()}"
                        )
                        await asyncio.sleep(0.05)
            except TimeoutError:
                raise AssertionError(f"not ready after {timeout:g} s:\n{self.last_words()}") from None

    async def get(self, path: str, session: aiohttp.ClientSession | None = None) -> tuple[int, str]:
        """Status and body of one of its endpoints; (0, reason) when it does not answer."""
        if session is None:
            async with aiohttp.ClientSession() as own:
                return await self.get(path, own)
        try:
            async with session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError as error:
            return 0, str(error)

    async def metrics(self) -> dict[str, float]:
        """What it counts, by the name and the labels of each series as they are written."""
        _, text = await self.get("/metrics")
        series = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in series}

    async def kill(self) -> None:
        """SIGKILL."""
        await self._process.stop()

    async def terminate(self, grace: float = 60.0) -> None:
        """SIGTERM; SIGKILL after `grace` seconds."""
        await self._process.stop(grace)

    def signal(self, number: signal.Signals) -> None:
        self._process.signal(number)

    async def wait_ended(self, timeout: float = 60.0) -> int:
        """Wait until it ends by itself; its exit code."""
        async with asyncio.timeout(timeout):
            while (code := self._process.exit_code) is None:
                await asyncio.sleep(0.02)
        return code

    async def wait_logged(self, words: str, timeout: float = 60.0) -> None:
        """Wait until `words` stand in its log."""
        try:
            async with asyncio.timeout(timeout):
                while not self.logged(words):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not logged after {timeout:g} s: {words!r}:\n{self.last_words()}") from None

    def last_words(self, lines: int = 40) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def logged(self, words: str) -> int:
        """How often `words` stand in its log."""
        return self.log.read_text(errors="replace").count(words) if self.log.exists() else 0
