"""Credentials that are rotated, refused or unreadable while requests go on."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from ccm_lb.errors import (
    UnauthorizedError,
)
from ccm_lb.kube import api as kube_api
from ccm_lb.kube import authorization
from tests.component.kube.world import OK, PATH, ApiServer, Source, client, status
from tests.component.recording import VirtualClock


async def test_a_rotated_token_is_used_at_once_after_a_refusal(api: ApiServer, clock: VirtualClock) -> None:
    source = Source("Bearer old", fresh_for=60)
    async with client(api, clock, source) as sut:
        await sut.get(PATH)
        source.header, api.accepted = "Bearer new", {"Bearer new"}
        assert await sut.post(PATH, {"a": 1}) == OK
    assert api.tokens == ["Bearer old", "Bearer old", "Bearer new"]
    assert api.bodies[1:] == [b'{"a":1}'] * 2
    assert clock.slept == []


async def test_many_requests_that_are_refused_together_read_the_credential_once(
    api: ApiServer, clock: VirtualClock
) -> None:
    source = Source("Bearer old", fresh_for=60)
    async with client(api, clock, source) as sut:
        await sut.get(PATH)
        source.header, api.accepted = "Bearer new", {"Bearer new"}
        answers = await asyncio.gather(*(sut.get(PATH) for _ in range(50)))
    assert answers == [OK] * 50
    assert source.reads == 2


async def test_a_refused_token_rests_and_is_tried_ever_more_rarely(api: ApiServer, clock: VirtualClock) -> None:
    source, api.accepted = Source("Bearer bad", fresh_for=60), set()
    sent_at: list[float] = []
    async with client(api, clock, source) as sut:
        for _ in range(600):
            before = len(api.seen)
            with pytest.raises(UnauthorizedError):
                await sut.get(PATH)
            sent_at += [clock.now - 1000.0] * (len(api.seen) - before)
            clock.now += 0.1
    assert sent_at == pytest.approx([0, 1, 3, *range(7, 60, 5)], abs=1.5)
    assert source.reads <= 2 * len(sent_at)


async def test_many_requests_that_are_refused_together_count_as_one_refusal(
    api: ApiServer, clock: VirtualClock
) -> None:
    api.accepted = set()
    async with client(api, clock, Source("Bearer bad")) as sut:
        errors = await asyncio.gather(*(sut.get(PATH) for _ in range(50)), return_exceptions=True)
        assert {type(error) for error in errors} == {UnauthorizedError}
        sent = len(api.seen)
        clock.now += authorization.FIRST_PAUSE
        await asyncio.gather(*(sut.get(PATH) for _ in range(50)), return_exceptions=True)
    assert len(api.seen) == sent + 1


async def test_work_resumes_when_the_new_token_is_there(api: ApiServer, clock: VirtualClock) -> None:
    source, api.accepted = Source("Bearer old", fresh_for=60), {"Bearer new"}
    async with client(api, clock, source) as sut:
        for _ in range(300):
            with pytest.raises(UnauthorizedError):
                await sut.get(PATH)
            clock.now += 0.1
        source.header, readable_at = "Bearer new", clock.now
        while True:
            with contextlib.suppress(UnauthorizedError):
                await sut.get(PATH)
                break
            clock.now += 0.1
    assert clock.now - readable_at <= 15


async def test_a_server_that_takes_the_token_again_is_noticed(api: ApiServer, clock: VirtualClock) -> None:
    source, api.accepted = Source("Bearer good"), set()
    async with client(api, clock, source) as sut:
        with pytest.raises(UnauthorizedError):
            await sut.get(PATH)
        api.accepted = None
        clock.now += authorization.FIRST_PAUSE
        assert await sut.get(PATH) == OK
        api.accepted = set()
        with pytest.raises(UnauthorizedError):
            await sut.get(PATH)
        api.accepted = None
        clock.now += authorization.FIRST_PAUSE  # what was refused once before does not count any more
        assert await sut.get(PATH) == OK


async def test_a_token_is_read_anew_when_its_time_is_over(api: ApiServer, clock: VirtualClock) -> None:
    source = Source("Bearer one", fresh_for=60)
    async with client(api, clock, source) as sut:
        await sut.get(PATH)
        source.header = "Bearer two"
        clock.now += 59
        await sut.get(PATH)
        clock.now += 1
        await sut.get(PATH)
    assert api.tokens == ["Bearer one", "Bearer one", "Bearer two"]


async def test_a_token_that_cannot_be_read_anew_is_used_on(
    api: ApiServer, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source("Bearer one", fresh_for=60)
    async with client(api, clock, source) as sut:
        await sut.get(PATH)
        source.error = "the token file is empty"
        clock.now += 60
        assert await sut.get(PATH) == OK
        assert await sut.get(PATH) == OK
    assert source.reads == 2
    assert [vars(record)["cause"] for record in caplog.records] == ["the token file is empty"]


async def test_nothing_is_sent_without_the_credential_that_there_should_be(api: ApiServer, clock: VirtualClock) -> None:
    source = Source()
    source.error = "the token file is empty"
    async with client(api, clock, source) as sut:
        with pytest.raises(UnauthorizedError, match="the token file is empty"):
            await sut.get(PATH)
    assert api.seen == []


async def test_the_token_goes_to_no_other_server(api: ApiServer, clock: VirtualClock) -> None:
    async with client(api, clock, Source("Bearer secret")) as sut:
        other = api.url.replace("127.0.0.1", "localhost")
        async with sut.kopf_session() as session, session.get(other + PATH) as response:
            assert response.status == 200
    assert api.tokens == [None]


async def test_kopf_in_its_own_thread_shares_the_credential(api: ApiServer, clock: VirtualClock) -> None:
    source = Source("Bearer old", fresh_for=60)

    async def watch(sut: kube_api.KubeApi) -> int:
        async with (
            sut.kopf_session() as session,
            session.get(sut.server + PATH) as response,
        ):
            await response.read()
            return response.status

    async with client(api, clock, source) as sut:
        await sut.get(PATH)
        source.header, api.accepted = "Bearer new", {"Bearer new"}
        results: list[int] = []
        thread = threading.Thread(target=lambda: results.append(asyncio.run(watch(sut))))
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
        assert await sut.get(PATH) == OK
    assert results == [200]
    assert source.reads == 2


async def test_kopf_sees_a_connection_error_instead_of_a_401_that_would_end_it(
    api: ApiServer, clock: VirtualClock
) -> None:
    api.accepted = set()
    async with (
        client(api, clock, Source("Bearer bad")) as sut,
        sut.kopf_session() as session,
    ):
        for _ in range(2):
            with pytest.raises(authorization.RefusedError):
                await session.get(sut.server + PATH)
    assert len(api.seen) == 1


async def test_a_session_that_is_refused_does_not_hold_up_another_one(
    api: ApiServer, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = "/api/v1/nodes"
    monkeypatch.setattr(api, "refusal", lambda request: status(401) if request.path == watch else None)
    async with client(api, clock, Source("Bearer good")) as sut, contextlib.AsyncExitStack() as stack:
        lease = sut.sibling()
        stack.push_async_callback(lease.close)
        for _ in range(12):
            with pytest.raises(UnauthorizedError):
                await sut.get(watch)
            assert await lease.get(PATH) == OK
