"""The scripted cloud: one for each side, both of this one program; it answers as a scenario told it to and writes everything down."""

import asyncio
import collections
import dataclasses
import ipaddress
import time
import zlib
from typing import Any, Self

from aiohttp import web

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of the controller; `outcome` is what the script had for it."""

    verb: str
    service: str
    nodes: tuple[str, ...]
    outcome: str
    exists: bool  # the load balancer, before the call

    @property
    def failed(self) -> bool:
        return self.outcome.startswith(("error", "retry")) or (self.verb == "get" and self.outcome == "elsewhere")

    @property
    def settles(self) -> bool:
        """Whether a success of it is the last call of a sync; one that looks and finds something is followed by another."""
        return not self.failed and (self.verb in ("ensure", "delete") or (self.verb == "get" and not self.exists))


@dataclasses.dataclass
class Balancer:
    """A load balancer, made from the objects that the controller handed over."""

    namespace: str
    name: str
    incarnation: int  # of the Services of this name that the cloud has seen, from 1 on
    service: Json
    nodes: list[Json]
    answered: Json  # what the last ensure said


class ScriptedCloud:
    """
    `async with` serves it over HTTP. Outcomes are used up one per call: `ok`, `error: WORDS`, `retry: SECONDS`, `elsewhere`; `absent`
    makes a get say no; `hostname`, `plain` (no ipMode) and `empty` are other answers of an ensure.
    """

    def __init__(self) -> None:
        self.balancers: dict[str, Balancer] = {}  # by the Service's UID
        self._scripts: dict[tuple[str, str, str], list[str]] = {}
        self._calls: dict[str, list[Call]] = collections.defaultdict(list)  # by namespace
        self._last: dict[str, float] = {}
        self._busy: collections.Counter[str] = collections.Counter()
        self._uids: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        self._rounds: dict[str, int] = {}  # the newest `round` annotation ensured, by namespace
        self._round_seen = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**24)
        app.router.add_post("/call", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    # ---- what a scenario says and asks

    def script(self, verb: str, namespace: str, name: str, outcomes: list[str]) -> None:
        """What the next calls of this kind for this Service come to."""
        self._scripts[verb, namespace, name] = list(outcomes)

    def forget(self, namespace: str, name: str) -> None:
        """No script is left for this Service."""
        for key in [one for one in self._scripts if one[1:] == (namespace, name)]:
            del self._scripts[key]

    def calls(self, namespace: str) -> list[Call]:
        """All calls so far for Services of the namespace."""
        return self._calls[namespace]

    def last_activity(self, namespace: str) -> float:
        """When a call began or ended last, on the monotonic clock."""
        return time.monotonic() if self._busy[namespace] else self._last.get(namespace, 0.0)

    def failures(self, namespace: str) -> dict[str, int]:
        """How many calls in a row have failed, of each Service whose last one did: its retry is still to come."""
        counts: dict[str, int] = {}
        last: dict[str, str] = {}
        for call in self._calls[namespace]:
            if call.failed:
                counts[call.service] = counts.get(call.service, 0) + 1
                last[call.service] = call.verb
            elif call.settles or call.verb == last.get(call.service) == "update":
                counts[call.service] = 0
        return {service: count for service, count in counts.items() if count}

    def of(self, namespace: str) -> list[tuple[str, Balancer]]:
        """The load balancers of a namespace with their owners' UIDs."""
        return [(uid, one) for uid, one in self.balancers.items() if one.namespace == namespace]

    async def wait_round(self, namespace: str, number: int) -> None:
        """Wait until the namespace's Service was ensured with the annotation `round` at `number` or later."""
        while self._rounds.get(namespace, 0) < number:
            self._round_seen.clear()
            await self._round_seen.wait()

    # ---- what a controller asks

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        service = body["service"]
        namespace = service["metadata"]["namespace"]
        self._busy[namespace] += 1
        try:
            return web.json_response(self._play(body["verb"], service, body.get("nodes") or []))
        finally:
            self._busy[namespace] -= 1
            self._last[namespace] = time.monotonic()

    def _play(self, verb: str, service: Json, nodes: list[Json]) -> Json:
        metadata = service["metadata"]
        namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        script = self._scripts.get((verb, namespace, name))
        outcome = script.pop(0) if script else "ok"
        if verb == "update" and outcome == "ok" and uid not in self.balancers:
            outcome = "error: no load balancer"
        names = tuple(sorted(node["metadata"]["name"] for node in nodes))
        self._calls[namespace].append(Call(verb, name, names, outcome, uid in self.balancers and outcome != "absent"))
        if uid not in (uids := self._uids[namespace, name]):
            uids.append(uid)
        word, _, words = outcome.partition(": ")
        if word == "error":
            return {"outcome": "error", "message": words}
        if word == "retry":
            return {"outcome": "retry", "message": "not ready yet", "seconds": float(words)}
        if word == "elsewhere":
            return {"outcome": "elsewhere"}
        answered = self._status(service, uids.index(uid) + 1, word)
        if verb in ("ensure", "update"):
            answered = self.balancers[uid].answered if verb == "update" else answered
            self.balancers[uid] = Balancer(namespace, name, uids.index(uid) + 1, service, nodes, answered)
            if (number := (metadata.get("annotations") or {}).get("round")) is not None:
                # An update may come with a Service that is older than the last ensure's.
                self._rounds[namespace] = max(int(number), self._rounds.get(namespace, 0))
                self._round_seen.set()
        if verb == "delete":
            self.balancers.pop(uid, None)
        exists = uid in self.balancers and word != "absent"
        return {"outcome": "ok", "exists": exists, "status": answered}

    def _status(self, service: Json, incarnation: int, form: str) -> Json:
        """Addresses follow from the Service's name alone, so that both sides have the same."""
        name = f"{service['metadata']['namespace']}/{service['metadata']['name']}#{incarnation}"
        number = zlib.crc32(name.encode())
        if form == "empty":
            return {}
        if form == "hostname":
            return {"ingress": [{"hostname": f"lb-{number}.example.com"}]}
        v4 = str(ipaddress.IPv4Address(0x0A000000 + number % 2**24))
        v6 = str(ipaddress.IPv6Address((0xFD << 120) + number))
        ips = [v4 if family == "IPv4" else v6 for family in service["spec"].get("ipFamilies") or ["IPv4"]]
        return {"ingress": [{"ip": ip} if form == "plain" else {"ip": ip, "ipMode": "Proxy"} for ip in ips]}
