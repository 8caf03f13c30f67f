"""Who holds the Lease, as it changes hands."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator

import aiohttp

from tests.controlplane.kube import Kube, KubeError

_LEASES = "coordination.k8s.io/v1/leases"


@dataclasses.dataclass
class Holders:
    """`changes` are (monotonic time, holder, empty for nobody), the first one being who held it at the beginning."""

    changes: list[tuple[float, str]] = dataclasses.field(default_factory=list)

    @property
    def gaps(self) -> list[float]:
        """For how many seconds nobody held it, each time that it was given back."""
        following = zip(self.changes, self.changes[1:], strict=False)
        return [later - since for (since, holder), (later, _) in following if not holder]

    async def wait_next(self, timeout: float = 60.0) -> None:
        """Until somebody else holds it than who does now."""
        now = self.changes[-1][1]
        try:
            async with asyncio.timeout(timeout):
                while self.changes[-1][1] in ("", now):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"nobody else has held the Lease for {timeout:g} s: {self.changes}") from None


@contextlib.asynccontextmanager
async def watched(kube: Kube) -> AsyncIterator[Holders]:
    """Grows until the end of the block."""
    holders = Holders()
    following = asyncio.create_task(_follow(kube, holders))
    try:
        async with asyncio.timeout(60.0):
            while not holders.changes:
                await asyncio.sleep(0.02)
        yield holders
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following


async def _follow(kube: Kube, holders: Holders) -> None:
    field = {"fieldSelector": "metadata.name=cloud-controller-manager"}
    while True:
        with contextlib.suppress(aiohttp.ClientError, KubeError):
            async for event in kube.watch(_LEASES, "kube-system", **field):
                holder = event["object"].get("spec", {}).get("holderIdentity", "")
                if not holders.changes or holders.changes[-1][1] != holder:
                    holders.changes.append((time.monotonic(), holder))
        await asyncio.sleep(0.1)
