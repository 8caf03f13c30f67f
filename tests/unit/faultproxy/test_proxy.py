"""What passes unchanged, and what the proxy remembers of it."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import pytest
import yaml

from tests.faultproxy import (
    FaultProxy,
    Match,
)
from tests.unit.faultproxy.world import Upstream, names, reach, watching


async def test_a_request_passes_unchanged_and_is_logged(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    headers = {"Authorization": "Bearer secret", "User-Agent": "probe/1"}
    async with session.put("/echo/a%2Fb?x=1&x=2", json={"a": 1}, headers=headers) as answer:
        assert (answer.status, await answer.json()) == (201, {"a": 1})
    assert upstream.taken == [("PUT", "/echo/a%2Fb?x=1&x=2", b'{"a": 1}')]
    assert upstream.headers[0]["Authorization"] == "Bearer secret"
    assert "Accept-Encoding" not in upstream.headers[0], "a compressed answer could not be changed"
    (seen,) = proxy.requests
    assert (seen.number, seen.method, seen.path, seen.json) == (1, "PUT", "/echo/a/b", {"a": 1})
    assert (seen.request.user_agent, seen.status, seen.outcome, seen.forwarded) == ("probe/1", 201, "passed", True)


async def test_watch_events_arrive_one_by_one(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    async with watching(session, upstream) as answer:
        for name in ("a", "b"):
            await upstream.send(name)
            assert await names(answer, 1) == [name]
        assert [one.path for one in proxy.open()] == ["/api/v1/services"]


async def test_a_watch_that_the_client_leaves_is_left_by_the_proxy(
    proxy: FaultProxy, upstream: Upstream, session: aiohttp.ClientSession
) -> None:
    async with watching(session, upstream) as answer:
        answer.close()
    await reach(lambda: upstream.left == 1 and proxy.requests[0].outcome == "client gone")


async def test_the_proxy_never_repeats_a_request_of_its_own_accord() -> None:
    taken: list[bytes] = []

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, FaultProxy(f"http://127.0.0.1:{port}") as proxy, aiohttp.ClientSession(proxy.url) as session:
        for count in (1, 2):
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.request("PATCH" if count == 1 else "DELETE", "/echo")
    assert len(taken) == len(proxy.requests)


async def test_a_server_that_is_away_is_a_broken_connection() -> None:
    async with FaultProxy("http://127.0.0.1:9") as proxy, aiohttp.ClientSession(proxy.url) as session:
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await session.get("/item")
        assert proxy.requests[0].outcome == "upstream gone"


async def test_the_log_can_be_asked_waited_for_and_forgotten(proxy: FaultProxy, session: aiohttp.ClientSession) -> None:
    await session.get("/item")
    await session.put("/echo", json={})
    assert [one.number for one in await proxy.wait_for(Match(method="PUT"))] == [2]
    proxy.forget()
    assert proxy.requests == ()
    with pytest.raises(TimeoutError):
        await proxy.wait_for(Match(), timeout=0.05)


async def test_a_kubeconfig_is_derived_with_the_same_credentials(proxy: FaultProxy, tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": "Zm9v"}
    source = tmp_path / "source"
    source.write_text(
        yaml.safe_dump({"clusters": [{"name": "c", "cluster": cluster}], "users": [{"user": {"token": "t"}}]})
    )
    derived = proxy.kubeconfig(source, tmp_path / "derived")
    assert derived.stat().st_mode & 0o077 == 0
    content = yaml.safe_load(derived.read_text())
    assert content["clusters"] == [{"name": "c", "cluster": {"server": proxy.url}}]
    assert content["users"] == [{"user": {"token": "t"}}]


def test_a_proxy_without_a_valid_key_says_so_at_once(tmp_path: Path) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        FaultProxy("http://127.0.0.1:9", tls=(tmp_path / "none", tmp_path / "none"))
