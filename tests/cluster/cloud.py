"""A fakecloud outside the cluster, on the router: its addresses are the router's, and it opens connections to node ports."""

from pathlib import Path

import aiohttp

from tests.cluster.cluster import POOL, ROUTER
from tests.harness.cloud import Fakecloud
from tests.packets.netns import HostProcess, Namespace


class RoutersCloud(Fakecloud):
    """`async with` starts and kills it."""

    def __init__(self, router: Namespace, directory: Path, *flags: str) -> None:
        super().__init__(directory, f"--listen={ROUTER}", "--addresses=interface", *flags, pool=POOL)
        self.url = f"http://{ROUTER}:{self.port}"
        self._router = router
        self._process = HostProcess(router, "fakecloud", self._process._command, directory / "fakecloud.log")

    def _connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(socket_factory=lambda info: self._router.open_socket(info[4][0]))
