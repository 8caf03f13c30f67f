"""fakecloud as a process, and what a test asks it behind the controller's back."""

import asyncio
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.controlplane.process import Process
from tests.controlplane.server import free_ports

Json = dict[str, Any]


class Fakecloud:
    """
    One fakecloud with its state in a file, so that it may be killed and started again; `async with` starts and kills it.

    `pool` is the network of its load balancers (`networks.reserved`), since all tests share this machine's loopback.
    """

    def __init__(self, directory: Path, *flags: str, pool: str) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = secrets.token_hex(16)
        self.directory = directory
        self.pool = pool
        self._ready = directory / "fakecloud-ready.json"
        command = [
            *(sys.executable, "-m", "fakecloud", "serve", f"--port={self.port}", f"--token={self.token}"),
            *(f"--state={directory / 'fakecloud.db'}", f"--pool={self.pool}", f"--ready-file={self._ready}"),
            *flags,
        ]
        self._process = Process("fakecloud", command, directory / "fakecloud.log")
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        headers = {"Authorization": f"Bearer {self.token}", "User-Agent": "tests"}
        self._session = aiohttp.ClientSession(self.url, headers=headers, connector=self._connector())
        return self

    def _connector(self) -> aiohttp.TCPConnector:
        """How its API is reached from here."""
        return aiohttp.TCPConnector()

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        await self.kill()

    async def start(self, timeout: float = 60.0) -> None:
        """Start it and wait until it listens."""
        self._ready.unlink(missing_ok=True)
        self._process.start()
        try:
            async with asyncio.timeout(timeout):
                while not self._ready.exists():
                    assert self._process.pid is not None, f"fakecloud ended:\n{self._process.last_words()}"
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"fakecloud is not ready:\n{self._process.last_words()}") from None

    async def kill(self) -> None:
        """SIGKILL."""
        await self._process.stop()

    def config(self, url: str | None = None, **settings: Any) -> Path:
        """A file for the controller's --cloud-config, with `url` in place of its own address (a proxy's)."""
        path = self.directory / f"cloud-{secrets.token_hex(4)}.yaml"
        path.write_text(json.dumps({"url": url or self.url, "token": self.token, **settings}))
        return path

    async def request(self, method: str, path: str, body: object = None, **params: str) -> Json:
        """One request, its answer's JSON; AssertionError for an error status."""
        assert self._session is not None, "use `async with`"
        async with self._session.request(method, path, json=body, params=params) as answer:
            text = await answer.text()
            assert answer.status < 400, f"{method} {path}: {answer.status} {text}"
            parsed: Json = json.loads(text) if text else {}
            return parsed

    async def load_balancers(self) -> list[Json]:
        """All of them, whoever owns them."""
        items: list[Json] = (await self.request("GET", "/v1/load-balancers", limit="1000"))["items"]
        return items

    async def load_balancer(self, uid: str) -> Json | None:
        """The one of a Service; AssertionError if there are two."""
        found = [one for one in await self.load_balancers() if (one["owner"] or {}).get("uid") == uid]
        assert len(found) <= 1, f"{len(found)} load balancers of {uid}"
        return found[0] if found else None

    async def fault(
        self, kind: str, *, match: Mapping[str, Any] | None = None, times: int | None = None, **effect: Any
    ) -> str:
        """Order a fault of the API, in the API's own words; its id. It lasts until `mend` without `times`."""
        body = {"match": dict(match or {}), "effect": {"kind": kind, **effect}, "times": times}
        return str((await self.request("POST", "/v1/faults", body))["id"])

    async def mend(self, fault: str | None = None) -> None:
        """Remove one fault, or all."""
        await self.request("DELETE", f"/v1/faults/{fault}" if fault else "/v1/faults")

    async def wait_struck(self, fault: str, times: int = 1, timeout: float = 60.0) -> None:
        """Wait until a fault has met so many calls."""
        seen: Json = {}
        try:
            async with asyncio.timeout(timeout):
                while (seen := await self.request("GET", f"/v1/faults/{fault}"))["applied"] < times:
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"not met {times} times after {timeout:g} s: {seen}") from None

    async def position(self) -> int:
        """Where the journal ends now; for `verify`."""
        seq: int = (await self.request("GET", "/v1/journal", limit="100000"))["lastSeq"]
        return seq

    async def verify(self, since: int = 0, *, exactly: int = 0, **calls: Any) -> None:
        """fakecloud's own word that so many of the controller's calls match: none unless told otherwise. AssertionError with the calls."""
        wanted = {"since": since, "userAgent": "ccm-lb/*", **calls}
        found = await self.request("POST", "/v1/journal/verify", {"filter": wanted, "exactly": exactly})
        assert found["complete"], "the journal has forgotten calls of that time"
        assert found["satisfied"], f"{found['count']} calls instead of {exactly} match {wanted}: {found['calls']}"

    async def verify_nothing_written(self, since: int = 0) -> None:
        """No call of the controller changed anything."""
        await self.verify(since, applied=True)

    async def journal(self, **params: str) -> list[Json]:
        """The calls so far, the tests' own left out."""
        items: list[Json] = (await self.request("GET", "/v1/journal", limit="100000", **params))["items"]
        return [one for one in items if one["userAgent"] != "tests"]

    async def mutations(self) -> list[Json]:
        """The calls of others that changed something."""
        return [one for one in await self.journal() if one["applied"]]


def targets(load_balancer: Mapping[str, Any] | None) -> list[str]:
    """The servers or addresses that a load balancer sends traffic to, sorted."""
    assert load_balancer is not None, "there is no load balancer"
    found: Sequence[Mapping[str, str]] = load_balancer["targets"]
    return sorted(one.get("server") or one["address"] for one in found)


def listeners(load_balancer: Mapping[str, Any] | None) -> list[tuple[str, int, int]]:
    """(protocol, port, target port) of a load balancer's listeners, sorted."""
    assert load_balancer is not None, "there is no load balancer"
    return sorted((one["protocol"], one["port"], one["targetPort"]) for one in load_balancer["listeners"])
