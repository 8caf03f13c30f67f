"""Requests and answers: errors of their own, repeats, pauses, and the metrics of them."""

from __future__ import annotations

import json

import pytest
from aiohttp import web

from ccm_lb.errors import (
    ApiError,
    ApiUnreachableError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from ccm_lb.http import pacing
from ccm_lb.kube import api as kube_api
from ccm_lb.redaction import Secrets
from tests.component.kube.world import OK, PATH, ApiServer, client, status
from tests.component.recording import CUT, VirtualClock
from tests.controlplane.server import free_ports


async def test_reads_and_writes_are_plain_json(api: ApiServer, clock: VirtualClock) -> None:
    async with client(api, clock) as sut:
        assert await sut.get(PATH, {"resourceVersion": "0"}) == OK
        assert await sut.post("/api/v1/events", {"a": 1}) == OK
        assert await sut.put(PATH, {"b": 2}) == OK
        assert await sut.patch(f"{PATH}/status", {"c": 3}) == OK
        assert await sut.patch(PATH, {"d": 4}, "application/merge-patch+json") == OK
    assert [(one.method, one.path_qs) for one in api.seen] == [
        ("GET", f"{PATH}?resourceVersion=0"),
        ("POST", "/api/v1/events?fieldManager=ccm-lb"),
        ("PUT", f"{PATH}?fieldManager=ccm-lb"),
        ("PATCH", f"{PATH}/status?fieldManager=ccm-lb"),
        ("PATCH", f"{PATH}?fieldManager=ccm-lb"),
    ]
    assert [one.content_type for one in api.seen[1:]] == [
        "application/json",
        "application/json",
        "application/strategic-merge-patch+json",
        "application/merge-patch+json",
    ]
    assert [json.loads(body) for body in api.bodies[1:]] == [
        {"a": 1},
        {"b": 2},
        {"c": 3},
        {"d": 4},
    ]
    assert {one.headers["User-Agent"] for one in api.seen} == {"ccm-lb/test"}


async def test_a_list_of_metadata_is_asked_for_as_such_and_read_to_its_last_page(
    api: ApiServer, clock: VirtualClock
) -> None:
    api.answers = [
        web.json_response({"items": [{"metadata": {"name": "a"}}], "metadata": {"continue": "next"}}),
        web.json_response({"items": None, "metadata": {}}),
    ]
    async with client(api, clock) as sut:
        items = await sut.list_metadata("/api/v1/services", {"resourceVersion": "0"})
    assert items == [{"metadata": {"name": "a"}}]
    assert api.seen[0].headers["Accept"].startswith("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
    assert [one.query_string for one in api.seen] == [
        "resourceVersion=0",
        "resourceVersion=0&continue=next",
    ]


async def test_an_answer_without_items_is_no_empty_list(api: ApiServer, clock: VirtualClock) -> None:
    async with client(api, clock) as sut:
        with pytest.raises(ApiUnreachableError, match="is it a Kubernetes API"):
            await sut.list_metadata("/api/v1/services")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (400, ApiError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (409, ConflictError),
        (410, ApiError),
        (422, InvalidError),
    ],
)
async def test_a_refusal_is_an_error_of_its_own(
    api: ApiServer, clock: VirtualClock, code: int, expected: type[ApiError]
) -> None:
    api.answers = [status(code, "Reason", 'services "web" is so')]
    async with client(api, clock) as sut:
        with pytest.raises(ApiError) as caught:
            await sut.get(PATH)
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.reason) == (code, "Reason")
    assert str(caught.value) == f'GET {PATH}: services "web" is so'
    assert len(api.seen) == 1


async def test_a_404_that_is_not_kubernetes_own_does_not_mean_that_an_object_is_gone(
    api: ApiServer, clock: VirtualClock
) -> None:
    api.answers = [web.Response(status=404, text="404 page\nnot found")]
    async with client(api, clock) as sut:
        with pytest.raises(ApiError, match="404 404 page not found") as caught:
            await sut.get(PATH)
    assert type(caught.value) is ApiError


@pytest.mark.parametrize("body", ["<html>login</html>", "[]", '{"half":', ""])
async def test_a_success_that_is_no_json_object_is_no_kubernetes_api(
    api: ApiServer, clock: VirtualClock, body: str
) -> None:
    api.answers = [web.Response(text=body)]
    async with client(api, clock) as sut:
        with pytest.raises(ApiUnreachableError, match=f"{api.url} answered GET {PATH} with something"):
            await sut.get(PATH)


async def test_a_redirect_is_not_followed(api: ApiServer, clock: VirtualClock) -> None:
    api.answers = [web.Response(status=302, headers={"Location": "/elsewhere"})]
    async with client(api, clock) as sut:
        with pytest.raises(ApiError) as caught:
            await sut.get(PATH)
    assert caught.value.status == 302
    assert len(api.seen) == 1


async def test_nobody_listening_is_said_with_the_server(api: ApiServer, clock: VirtualClock) -> None:
    api.url = f"http://127.0.0.1:{free_ports(1)[0]}"
    async with client(api, clock) as sut:
        with pytest.raises(
            ApiUnreachableError,
            match=f"{api.url} cannot be reached: GET {PATH}: .*Connect call",
        ):
            await sut.get(PATH)


async def test_a_silent_server_is_given_up(api: ApiServer, clock: VirtualClock) -> None:
    api.silent = True
    async with client(api, clock, timeout=0.05) as sut:
        with pytest.raises(
            ApiUnreachableError,
            match=rf"{api.url} gave no answer to GET {PATH} within 0\.05 s",
        ):
            await sut.get(PATH)


@pytest.mark.parametrize(
    ("method", "answer", "sent"),
    [
        pytest.param("get", status(500), 3, id="a read after a 500"),
        pytest.param("get", status(503), 3, id="a read after a 503"),
        pytest.param("put", status(504), 3, id="a PUT after a 504"),
        pytest.param("patch", status(502), 3, id="a PATCH after a 502"),
        pytest.param("patch", CUT, 3, id="a PATCH after a cut connection"),
        pytest.param("post", status(500), 1, id="not a POST after a 500"),
        pytest.param("post", CUT, 1, id="not a POST after a cut connection"),
        pytest.param("post", status(429), 3, id="a POST after a 429"),
        pytest.param("get", status(404), 1, id="not a read after a 404"),
    ],
)
async def test_what_may_be_repeated_is(
    api: ApiServer, clock: VirtualClock, method: str, answer: web.Response, sent: int
) -> None:
    api.answers = [answer]
    async with client(api, clock) as sut:
        with pytest.raises((ApiError, ApiUnreachableError)):
            await getattr(sut, method)(PATH, {})
    assert len(api.seen) == sent
    assert sum(clock.slept) <= kube_api.RETRY_WINDOW


async def test_a_pause_that_the_server_asks_for_holds_for_all_requests(api: ApiServer, clock: VirtualClock) -> None:
    api.answers = [status(429, Retry_After="60"), web.json_response(OK)]
    async with client(api, clock) as sut:
        with pytest.raises(ApiError) as caught:
            await sut.get(PATH)
        assert (caught.value.status, caught.value.retry_after) == (429, 60)
        clock.now += 20
        with pytest.raises(ApiError, match="40 s are left"):
            await sut.post(PATH, {})
        assert len(api.seen) == 1
        clock.now += 35
        assert await sut.get(PATH) == OK
    assert clock.slept[-1] == 5


async def test_a_siblings_pauses_are_its_own(api: ApiServer, clock: VirtualClock) -> None:
    api.answers = [status(429, Retry_After="60"), web.json_response(OK)]
    async with client(api, clock) as sut:
        with pytest.raises(ApiError):
            await sut.get(PATH)
        sibling = sut.sibling()
        assert await sibling.get(PATH) == OK
        await sibling.close()


async def test_a_limit_of_our_own_is_kept(api: ApiServer, clock: VirtualClock) -> None:
    async with client(api, clock, bucket=pacing.TokenBucket(2, 1, clock)) as sut:
        for _ in range(4):
            await sut.get(PATH)
    assert clock.slept == [0.5, 0.5, 0.5]


async def test_every_request_is_told_to_the_metrics(api: ApiServer, clock: VirtualClock) -> None:
    told: list[tuple[str, str, str]] = []
    api.answers = [CUT, status(500), web.json_response(OK)]
    async with client(api, clock, observer=lambda method, code, _, host: told.append((method, code, host))) as sut:
        await sut.put(PATH, {})
    host = api.url.removeprefix("http://")
    assert told == [("PUT", "error", host), ("PUT", "500", host), ("PUT", "200", host)]


@pytest.mark.parametrize("secret", ["pass-word-of-15", "correct horse battery", "Zq7" * 12])
async def test_a_page_that_echoes_a_secret_is_cut_after_that_was_masked(
    api: ApiServer, clock: VirtualClock, secret: str
) -> None:
    secrets = Secrets()
    secrets.add(secret)
    for before in range(kube_api.PAGE - len(secret), kube_api.PAGE):
        api.answers = [web.Response(status=418, text=f"{'x' * (before - 1)} {secret} and more")]
        async with client(api, clock, secrets=secrets) as sut:
            with pytest.raises(ApiError) as caught:
                await sut.get(PATH)
        assert secret[:3] not in str(caught.value)
