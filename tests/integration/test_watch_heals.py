"""
Whatever strikes a watch of Services or of nodes, once or again and again: events flow again soon, and /readyz names it meanwhile.

Several controllers are struck at the same time, each in both of its watches: one after another it would take half an hour.
"""

import asyncio
import contextlib
import dataclasses
import itertools
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from tests.faultproxy import Answer, Cut, FaultProxy, InjectError, Match, Page, Rule, Stall
from tests.faultproxy.effects import Effect
from tests.harness import objects
from tests.harness.cloud import targets
from tests.harness.controller import Controller
from tests.harness.stack import Stack

WATCH_OF = {"services": Match(watch=True, path="/services$"), "nodes": Match(watch=True, path="/nodes$")}

SLOW = 10.0  # seconds more than is promised, for a machine that does other work
HEALED = 10.0 + SLOW  # seconds after the last strike
STRUCK = 30.0 + SLOW  # seconds that twelve strikes in a row may take
LOST = 90.0  # seconds without a watch until /livez says so
PATIENT = 90.0  # the same of strikes after each of which some seconds are waited: a silent server, a credential that is refused
PATIENCE = {"401", "silence before the head", "silence after the head"}

KINDS: dict[str, Effect] = {
    "410 instead of a watch": Answer(410, "Expired"),
    "400": Answer(400),
    "401": Answer(401),
    "403": Answer(403),
    "404": Answer(404),
    "422": Answer(422),
    "429": Answer(429, retry_after=1),
    "500": Answer(500),
    "503": Answer(503),
    "504": Answer(504),
    "410 in the stream": InjectError(),
    "500 in the stream": InjectError(500, "InternalError", "etcdserver: no leader"),
    "429 in the stream": InjectError(429, "TooManyRequests", "storage is (re)initializing"),
    "an error without a word": Page(b'{"type":"ERROR","object":{}}\n', content_type="application/json"),
    "cut before the head": Cut(),
    "cut after the head": Cut(after_bytes=0),
    "cut within a line": Cut(after_bytes=40),
    "reset": Cut(reset=True),
    "a page that is no JSON": Page(b"<html>welcome</html>"),
    "JSON that is no event": Page(b'{"kind":"Status","status":"Success"}\n', content_type="application/json"),
    "half a character": Page(b'{"type":"ADDED","object":{"\xff\xc3', content_type="application/json"),
    "nothing at all": Page(b""),
    "204": Page(b"", status=204),
    "silence before the head": Stall(),
    "silence after the head": Stall(after_bytes=0),
}

# Played one after another to each of so many controllers, which are struck at the same time.
CONTROLLERS = 5
SERIES = {"once": 1, "twelve times": 12}
LEADER = "c2"  # holds the Lease; it meets the 401, after which a credential rests for all requests until one of another kind succeeds


@dataclasses.dataclass
class Struck:
    """A controller behind a proxy of its own, with a class of its own, and one Service that all nodes are targets of."""

    stack: Stack
    proxy: FaultProxy
    controller: Controller
    name: str
    numbers: Iterator[int]  # of nodes, for all controllers together
    uid: str = ""

    async def start(self) -> None:
        await self.controller.start_ready()
        self.uid = (await self.create("first"))["metadata"]["uid"]
        await self.stack.wait_served(f"{self.name}-first")

    async def create(self, suffix: str) -> objects.Json:
        body = objects.service(f"{self.name}-{suffix}", loadBalancerClass=f"test.example/{self.name}")
        return await self.stack.create(body)

    async def play(self, resource: str, kind: str, times: int) -> str | None:
        """Strike the watch of a resource, then see whether its events flow; what is wrong, None if all is well."""
        rule = self.proxy.add(Rule(KINDS[kind], WATCH_OF[resource], times=times))
        try:
            self.proxy.cut(WATCH_OF[resource])
            async with asyncio.timeout(PATIENT if kind in PATIENCE or self.name == LEADER else STRUCK):
                while rule.hits < times:
                    await asyncio.sleep(0.02)
            ready = await self.controller.get("/readyz")
            if times > 2 and not re.search(rf"watch failed: .*\b{resource}: ", ready[1]):
                return f"{self.name}: {kind}, {resource}, {times} times, and /readyz says {ready}"
            for number in range(2):  # the first one may have been found by the comparison that follows a list
                async with asyncio.timeout(HEALED):
                    await self.notices(resource, f"{'-'.join(re.findall('[a-z0-9]+', kind.lower()))}-{times}-{number}")
        except TimeoutError:
            return (
                f"{self.name}: {kind}, {resource}, {rule.hits} of {times} times: {await self.controller.get('/readyz')}"
            )
        finally:
            self.proxy.remove(rule)
            self.proxy.cut(WATCH_OF[resource])
        return None

    async def notices(self, resource: str, name: str) -> None:
        """Make an object, and wait until the controller has done its work with it."""
        if resource == "services":
            await self.create(name)
            await self.stack.wait_served(f"{self.name}-{name}")
            await self.stack.delete(f"{self.name}-{name}")  # or each node is a target of them all
        else:
            node = f"n{next(self.numbers)}"
            await self.stack.add_node(node)
            (wanted,) = self.stack.servers(node)
            await self.stack.wait_balanced(self.uid, lambda balancer: wanted in targets(balancer))


@contextlib.asynccontextmanager
async def struck(stack: Stack, name: str, numbers: Iterator[int]) -> AsyncIterator[Struck]:
    flags = [f"--load-balancer-class=test.example/{name}", "--handle-unclassed=false"]
    if name != LEADER:
        # By that name installations for several classes tell their finalizers apart.
        flags += ["--leader-elect=false", f"--leader-elect-resource-name={name}"]
    async with (
        FaultProxy(stack.plane.url, ca=stack.plane.ca) as proxy,
        stack.controller(*flags, kubeconfig=stack.through(proxy), name=name) as controller,
    ):
        one = Struck(stack, proxy, controller, name, numbers)
        await one.start()
        yield one


@pytest.mark.timeout(600)
async def test_whatever_strikes_a_watch_events_flow_again_soon(stack: Stack) -> None:
    async with contextlib.AsyncExitStack() as controllers:
        numbers = itertools.count(1)
        one_by_one = [struck(stack, f"c{number}", numbers) for number in range(CONTROLLERS)]
        ones = await asyncio.gather(*(controllers.enter_async_context(one) for one in one_by_one))

        async def lane(one: Struck, resource: str, kinds: Sequence[str]) -> list[str]:
            played = [await one.play(resource, kind, times) for kind in kinds for times in SERIES.values()]
            return [wrong for wrong in played if wrong]

        lanes = [
            lane(one, resource, list(KINDS)[number::CONTROLLERS][::direction])
            for number, one in enumerate(ones)
            for resource, direction in (("services", 1), ("nodes", -1))
        ]
        wrong = [line for lines in await asyncio.gather(*lanes) for line in lines]
        assert not wrong, "\n".join(["", *wrong])
        assert all(one.controller.pid is not None for one in ones), "one ended"


async def wait_for_answer(controller: Controller, path: str, status: int, words: str, timeout: float) -> str:
    """Wait until one of its endpoints answers with that status and these words; what it said last."""
    said = ""
    try:
        async with asyncio.timeout(timeout):
            while True:
                found, said = await controller.get(path)
                if found == status and words in said:
                    return said
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{path} after {timeout:g} s: {found} {said}") from None


async def test_a_watch_that_cannot_be_restored_ends_readiness_at_once_and_liveness_after_a_while(
    stack: Stack, api_proxy: FaultProxy
) -> None:
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        await controller.start_ready()
        rule = api_proxy.add(Rule(Answer(500), WATCH_OF["nodes"]))
        api_proxy.cut(WATCH_OF["nodes"])
        began = time.monotonic()
        await wait_for_answer(controller, "/readyz", 503, "[-]watch failed: nodes: ", HEALED)
        assert (await controller.get("/livez"))[0] == 200
        await stack.create(objects.service("web"))
        await stack.wait_served("web", HEALED)
        said = await wait_for_answer(controller, "/livez", 503, "[-]watch failed: nodes: ", LOST + 15)
        assert time.monotonic() - began > LOST - 15
        assert "services" not in said
        api_proxy.remove(rule)
        await wait_for_answer(controller, "/livez", 200, "", 2 * HEALED)
        await wait_for_answer(controller, "/readyz", 200, "", HEALED)


async def test_connections_that_cannot_be_made_are_made_as_soon_as_they_can(stack: Stack, tmp_path: Path) -> None:
    certificate, key = untrusted(tmp_path)
    good = (stack.plane.certificate, stack.plane.private_key)
    async with (
        FaultProxy(stack.plane.url, ca=stack.plane.ca, tls=good) as proxy,
        stack.controller("--leader-elect=false", kubeconfig=stack.through(proxy)) as controller,
    ):
        await controller.start_ready()
        for number, how in enumerate(("TLS", "refused")):
            await (proxy.refuse() if how == "refused" else asyncio.to_thread(proxy.show, certificate, key))
            said = ""
            async with asyncio.timeout(2 * HEALED):
                while "[-]watch failed: services: " not in said or "; nodes: " not in said:
                    proxy.cut()  # again, since one that was just being accepted escapes
                    _, said = await controller.get("/readyz")
                    await asyncio.sleep(0.2)
            assert ("certificate" if how == "TLS" else "Cannot connect") in said
            await (proxy.accept() if how == "refused" else asyncio.to_thread(proxy.show, *good))
            await stack.create(objects.service(f"web-{number}", {"http": 18080 + number}))
            await stack.wait_served(f"web-{number}", HEALED)
            await wait_for_answer(controller, "/readyz", 200, "", 2 * HEALED)


def untrusted(folder: Path) -> tuple[Path, Path]:
    """A certificate that nobody trusts, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: apt-get install openssl")
    certificate, key = folder / "untrusted.crt", folder / "untrusted.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
