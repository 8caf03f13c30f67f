"""What the transport sends, what it repeats, and what an error says."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import test_utils, web

from ccm_lb.errors import CloudUnreachableError
from ccm_lb.http import transport
from ccm_lb.redaction import Secrets
from tests.component.http.world import Fence, World, answer
from tests.component.recording import CUT, VirtualClock
from tests.controlplane.server import free_ports


async def test_a_request_carries_its_body_as_json_and_names_its_sender(world: World) -> None:
    response = await world.transport.request(
        "POST", world.cloud.url + "/v1/x?a=1", body={"n": [1]}, params={"b": "2"}, headers={"Fencing-Token": "t"}
    )
    request = world.cloud.seen[0]
    assert (response.status, response.json()) == (200, {"ok": True})
    assert world.cloud.bodies == [b'{"n": [1]}']
    assert request.content_type == "application/json"
    assert request.headers["User-Agent"].startswith("ccm-lb/")
    assert request.headers["Fencing-Token"] == "t"
    assert request.query_string == "a=1&b=2"
    assert world.metrics == [("POST", "200")]


async def test_the_fencing_token_is_the_backends_to_put_on(world: World) -> None:
    await world.transport.request("PUT", world.cloud.url)
    assert "Fencing-Token" not in world.cloud.seen[0].headers
    assert world.transport.fencing_token == "uid:7"


@pytest.mark.parametrize(
    ("method", "idempotent", "status", "sent"),
    [
        pytest.param("GET", None, 503, 3, id="a read is repeated"),
        pytest.param("PUT", None, 502, 3, id="a PUT is repeated"),
        pytest.param("DELETE", None, 504, 3, id="a DELETE is repeated"),
        pytest.param("POST", None, 503, 1, id="a POST is not repeated"),
        pytest.param("PATCH", None, 503, 1, id="a PATCH is not repeated"),
        pytest.param("POST", True, 503, 3, id="a POST with a key of its own is repeated"),
        pytest.param("PUT", False, 503, 1, id="a PUT that the backend calls unsafe is not repeated"),
        pytest.param("GET", None, 500, 1, id="a 500 is an answer"),
        pytest.param("GET", None, 404, 1, id="a 404 is an answer"),
        pytest.param("GET", None, 302, 1, id="a redirect is an answer"),
    ],
)
async def test_what_may_be_repeated_is(
    world: World, method: str, *, idempotent: bool | None, status: int, sent: int
) -> None:
    world.cloud.answers = [answer(status)]
    response = await world.transport.request(method, world.cloud.url, idempotent=idempotent)
    assert response.status == status
    assert len(world.cloud.seen) == sent
    assert all(0.2 <= pause <= 2 for pause in world.clock.slept)


async def test_a_repeated_request_returns_the_good_answer(world: World) -> None:
    world.cloud.answers = [answer(502), CUT, answer(204)]
    response = await world.transport.request("PUT", world.cloud.url, body={})
    assert (response.status, response.json()) == (204, None)
    assert world.metrics == [("PUT", "502"), ("PUT", "error"), ("PUT", "204")]


async def test_no_attempt_begins_when_the_first_one_took_long(world: World) -> None:
    world.cloud.answers = [CUT]
    world.cloud.before_answer = lambda: setattr(world.clock, "now", world.clock.now + transport.RETRY_WINDOW)
    with pytest.raises(CloudUnreachableError):
        await world.transport.request("GET", world.cloud.url)
    assert len(world.cloud.seen) == 1


async def test_a_request_that_must_not_be_repeated_is_sent_once_also_when_it_is_a_put(world: World) -> None:
    world.cloud.answers = [CUT]
    with pytest.raises(CloudUnreachableError, match="cut"):
        await world.transport.request("PUT", world.cloud.url, body={}, idempotent=False)
    assert len(world.cloud.seen) == 1


async def test_a_cut_connection_names_the_request_and_hides_its_secrets(world: World) -> None:
    world.cloud.answers = [CUT]
    url = world.cloud.url.replace("//", "//user:password@") + "/v1/x?token=geheim"
    with pytest.raises(CloudUnreachableError) as caught:
        await world.transport.request("POST", url)
    assert "POST http://127.0.0.1:" in str(caught.value)
    assert "/v1/x" in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert "password" not in str(caught.value)
    assert len(world.cloud.seen) == 1


async def test_an_answer_that_is_not_http_hides_the_secrets_too(world: World) -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(CloudUnreachableError) as caught:
            await world.transport.request("POST", f"http://127.0.0.1:{port}/?token=geheim")
    assert "geheim" not in str(caught.value)


async def test_nothing_listens_is_said_with_the_address(world: World) -> None:
    port = free_ports(1)[0]
    with pytest.raises(CloudUnreachableError, match=f"GET http://127.0.0.1:{port}/v1: .*Connect call failed"):
        await world.transport.request("GET", f"http://127.0.0.1:{port}/v1")
    assert world.metrics == [("GET", "error")] * 3


async def test_a_silent_cloud_is_given_up_after_the_timeout() -> None:
    silence = asyncio.Event()

    async def hang(_: web.BaseRequest) -> web.Response:
        await silence.wait()
        return web.Response()

    sut = transport.CloudTransport(Fence(), VirtualClock(), secrets=Secrets(), timeout=0.05)
    async with test_utils.RawTestServer(hang) as server:
        await sut.open()
        with pytest.raises(CloudUnreachableError, match=r"no answer within 0\.05 s"):
            await sut.request("POST", str(server.make_url("/")))
        await sut.close()
        silence.set()
