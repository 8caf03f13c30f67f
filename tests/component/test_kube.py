"""The client of the Kubernetes API against real HTTP(S) servers on loopback: getting in, errors, repeats, pauses."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import datetime as dt
import json
import shutil
import ssl
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
import yarl
from aiohttp import test_utils, web

from ccm_lb import authorization, credentials, kube, kubeapi, pacing
from ccm_lb.errors import (
    ApiError,
    ApiUnreachableError,
    ConfigError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)
from tests.controlplane.server import free_ports

OK = {"kind": "Service", "metadata": {"name": "web"}}
CUT = web.Response(status=599)
PATH = "/api/v1/namespaces/default/services/web"


def status(code: int, reason: str = "", message: str = "because", **headers: str) -> web.Response:
    body = {
        "kind": "Status",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
    return web.json_response(body, status=code, headers={k.replace("_", "-"): v for k, v in headers.items()})


class VirtualClock:
    """Sleeping takes no time and is written down."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class ApiServer:
    """Answers in order, the last answer for ever, to those whose Authorization is in `accepted` (None: everybody)."""

    def __init__(self) -> None:
        self.answers: list[web.Response] = [web.json_response(OK)]
        self.accepted: set[str | None] | None = None
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.url = ""
        self.silent = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        if self.silent:
            await asyncio.Event().wait()
        self.bodies.append(await request.read())
        if self.accepted is not None and request.headers.get("Authorization") not in self.accepted:
            return status(401, "Unauthorized", "Unauthorized")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is CUT:
            assert request.transport is not None
            request.transport.close()
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    @property
    def tokens(self) -> list[str | None]:
        return [request.headers.get("Authorization") for request in self.seen]


@contextlib.asynccontextmanager
async def serve(api: ApiServer, context: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    server = test_utils.TestServer(app, scheme="https" if context else "http")
    await server.start_server(ssl=context)
    api.url = str(server.make_url("")).rstrip("/")
    yield
    await server.close()


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    server = ApiServer()
    async with serve(server):
        yield server


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


class Source:
    """A credential that a test changes; how often it was read is written down."""

    def __init__(self, header: str | None = None, fresh_for: float | None = None) -> None:
        self.header, self.fresh_for, self.reads = header, fresh_for, 0
        self.error = ""

    def read(self) -> credentials.Credential:
        self.reads += 1
        if self.error:
            raise credentials.CredentialError(self.error)
        return credentials.Credential(self.header, self.fresh_for)


@contextlib.asynccontextmanager
async def client(
    api: ApiServer,
    clock: VirtualClock,
    source: credentials.Source | None = None,
    timeout: float = 30,
    **options: Any,
) -> AsyncIterator[kubeapi.KubeApi]:
    present = authorization.Credentials(source or credentials.Fixed(None), clock)
    endpoint = kubeapi.Endpoint(api.url, ssl.create_default_context(), present, timeout=timeout)
    sut = kubeapi.KubeApi(endpoint, clock, user_agent="ccm-lb/test", **options)
    yield sut
    await sut.close()


@contextlib.asynccontextmanager
async def connected(*args: Any, **options: Any) -> AsyncIterator[kube.KubeApi]:
    sut = await kube.connect(*args, user_agent="ccm-lb/test", **options)
    yield sut
    await sut.close()


def kubeconfig(
    folder: Path,
    server: str,
    user: Mapping[str, Any] | None = None,
    cluster: Mapping[str, Any] | None = None,
) -> Path:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": dict(user or {})}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


# ---- requests and answers


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
    assert sum(clock.slept) <= kubeapi.RETRY_WINDOW


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
    told: list[tuple[str, str]] = []
    api.answers = [CUT, status(500), web.json_response(OK)]
    async with client(api, clock, observer=lambda method, code, _: told.append((method, code))) as sut:
        await sut.put(PATH, {})
    assert told == [("PUT", "error"), ("PUT", "500"), ("PUT", "200")]


# ---- credentials


async def test_a_rotated_token_is_used_at_once_after_a_refusal(api: ApiServer, clock: VirtualClock) -> None:
    source = Source("Bearer old", fresh_for=60)
    async with client(api, clock, source) as sut:
        await sut.get(PATH)
        source.header, api.accepted = "Bearer new", {"Bearer new"}
        assert await sut.post(PATH, {"a": 1}) == OK
    assert api.tokens == ["Bearer old", "Bearer old", "Bearer new"]
    assert api.bodies[1:] == [b'{"a": 1}'] * 2
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
    assert [round(moment) for moment in sent_at] == [0, 1, 3, 7, 15, 25, 35, 45, 55]
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

    async def watch(sut: kubeapi.KubeApi) -> int:
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


# ---- sources


def test_a_token_file_is_read_without_its_newline(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    assert credentials.TokenFile(tmp_path / "token").read().header == "Bearer abc"


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "No such file"), (b"", "is empty"), (b"\xff\xfe", "not text")],
)
def test_a_token_file_that_is_none_says_why(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(credentials.CredentialError, match=f"{path}.*{message}"):
        credentials.TokenFile(path).read()


V1 = "client.authentication.k8s.io/v1"


def plugin(folder: Path, script: str) -> str:
    path = folder / "plugin"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def prints(status_: Mapping[str, Any]) -> str:
    return f"print(json.dumps({{'apiVersion': '{V1}', 'kind': 'ExecCredential', 'status': {dict(status_)!r}}}))"


def test_a_plugins_token_is_fresh_until_a_minute_before_its_end(tmp_path: Path) -> None:
    until = (dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)).isoformat()
    command = plugin(tmp_path, prints({"token": "abc", "expirationTimestamp": until}))
    credential = credentials.ExecPlugin([command], V1, {}, None).read()
    assert credential.header == "Bearer abc"
    assert credential.fresh_for is not None
    assert 3500 < credential.fresh_for <= 3540


def test_a_plugin_is_told_what_client_go_tells_it(tmp_path: Path) -> None:
    script = "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n" + (
        f"print(json.dumps({{'apiVersion': '{V1}', 'status': {{'token': json.dumps([info, os.environ['X'], sys.argv[1:]])}}}}))"
    )
    source = credentials.ExecPlugin([plugin(tmp_path, script), "a"], V1, {"X": "y"}, {"server": "https://h"})
    header = source.read().header or ""
    assert json.loads(header.removeprefix("Bearer ")) == [
        {
            "apiVersion": V1,
            "kind": "ExecCredential",
            "spec": {"interactive": False, "cluster": {"server": "https://h"}},
        },
        "y",
        ["a"],
    ]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("print('boo', file=sys.stderr); sys.exit(3)", "ended with 3: boo"),
        ("print('hello')", "no JSON"),
        ("print('{}')", "no ExecCredential of client.authentication.k8s.io/v1"),
        (
            prints({"clientCertificateData": "x"}),
            "no token; client certificates are not supported",
        ),
    ],
)
def test_a_plugin_that_fails_says_how(tmp_path: Path, script: str, message: str) -> None:
    command = plugin(tmp_path, script)
    with pytest.raises(credentials.CredentialError, match=f"{command}.*{message}"):
        credentials.ExecPlugin([command], V1, {}, None).read()


def test_a_credential_does_not_show_itself() -> None:
    assert "secret" not in repr(credentials.Credential("Bearer secret"))


# ---- getting in


@pytest.mark.parametrize(
    ("user", "header"),
    [
        pytest.param({"token": "abc"}, "Bearer abc", id="token"),
        pytest.param(
            {"tokenFile": "my-token"},
            "Bearer from-file",
            id="token file beside the kubeconfig",
        ),
        pytest.param(
            {"token": "abc", "tokenFile": "my-token"},
            "Bearer from-file",
            id="the file wins",
        ),
        pytest.param(
            {"username": "u", "password": "p"},
            "Basic " + base64.b64encode(b"u:p").decode(),
            id="basic authentication",
        ),
        pytest.param(
            {"exec": {"apiVersion": V1, "command": "./plugin"}},
            "Bearer from-plugin",
            id="plug-in",
        ),
        pytest.param({}, None, id="anonymous"),
    ],
)
async def test_a_kubeconfig_says_who_we_are(
    api: ApiServer, tmp_path: Path, user: Mapping[str, Any], header: str | None
) -> None:
    (tmp_path / "my-token").write_text("from-file\n")
    plugin(tmp_path, prints({"token": "from-plugin"}))
    async with connected(kubeconfig(tmp_path, api.url + "/", user), None) as sut:
        assert sut.server == api.url
        assert await sut.get(PATH) == OK
    assert api.tokens == [header]


async def test_master_takes_the_servers_place(api: ApiServer, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", {"token": "abc"})
    async with connected(path, api.url) as sut:
        await sut.get(PATH)
    assert api.tokens == ["Bearer abc"]


async def test_master_alone_is_talked_to_without_a_credential(api: ApiServer, tmp_path: Path) -> None:
    async with connected(None, api.url.removeprefix("http://"), pod=kube.Pod(tmp_path, {})) as sut:
        assert sut.server == api.url
        await sut.get(PATH)
    assert api.tokens == [None]


async def test_the_flags_for_a_limit_of_our_own_reach_the_requests(api: ApiServer, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with connected(kubeconfig(tmp_path, api.url), None, qps=20, burst=1) as sut:
        begin = loop.time()
        for _ in range(5):
            await sut.get(PATH)
        assert loop.time() - begin >= 0.2
    assert len(api.seen) == 5


# ---- TLS


@dataclasses.dataclass(frozen=True)
class Pki:
    """A certificate authority, a server's certificate for `api.test` and 127.0.0.1, and a client's; made by openssl."""

    folder: Path

    def server(self, *, client_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.folder / "ca.crt"))
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        context.verify_mode = ssl.CERT_REQUIRED if client_certificate else ssl.CERT_NONE
        return context

    def data(self, name: str) -> str:
        return base64.b64encode((self.folder / name).read_bytes()).decode()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: certificates for the TLS tests cannot be made")
    folder = tmp_path_factory.mktemp("pki")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:api.test")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "rsa:2048", "-nodes")
    openssl(
        "req",
        "-x509",
        *key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
        "-subj",
        "/CN=test authority",
        "-days",
        "1",
    )
    for name in ("server", "client"):
        openssl(
            "req",
            *key,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
            "-subj",
            f"/CN={name}",
        )
        signed_by = (
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "1",
            "-extfile",
            "names",
        )
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signed_by)
    return Pki(folder)


async def test_a_pod_uses_its_service_account(pki: Pki, tmp_path: Path) -> None:
    api = ApiServer()
    (tmp_path / "token").write_text("sa\n")
    shutil.copy(pki.folder / "ca.crt", tmp_path)
    async with serve(api, pki.server()):
        url = yarl.URL(api.url)
        environ = {
            "KUBERNETES_SERVICE_HOST": str(url.host),
            "KUBERNETES_SERVICE_PORT": str(url.port),
        }
        async with connected(None, None, pod=kube.Pod(tmp_path, environ)) as sut:
            await sut.get(PATH)
            api.accepted = {"Bearer renewed"}
            (tmp_path / "token").write_text("renewed\n")
            await sut.get(PATH)
    assert api.tokens == ["Bearer sa", "Bearer sa", "Bearer renewed"]


async def test_a_client_certificate_is_shown(pki: Pki, tmp_path: Path) -> None:
    api = ApiServer()
    user = {
        "client-certificate-data": pki.data("client.crt"),
        "client-key-data": pki.data("client.key"),
    }
    async with serve(api, pki.server(client_certificate=True)):
        path = kubeconfig(tmp_path, api.url, user, {"certificate-authority-data": pki.data("ca.crt")})
        async with connected(path, None) as sut:
            assert await sut.get(PATH) == OK


@pytest.mark.parametrize(
    ("cluster", "trusted"),
    [
        pytest.param({"certificate-authority": "ca.crt"}, True, id="the right authority"),
        pytest.param({}, False, id="an unknown authority"),
        pytest.param({"insecure-skip-tls-verify": True}, True, id="unchecked by the users will"),
    ],
)
async def test_the_server_is_checked(pki: Pki, cluster: Mapping[str, Any], *, trusted: bool) -> None:
    api = ApiServer()
    async with (
        serve(api, pki.server()),
        connected(kubeconfig(pki.folder, api.url, None, cluster), None) as sut,
    ):
        if trusted:
            assert await sut.get(PATH) == OK
        else:
            with pytest.raises(ApiUnreachableError, match="certificate verify failed"):
                await sut.get(PATH)


@pytest.mark.parametrize(("name", "trusted"), [(None, False), ("api.test", True), ("other.test", False)])
async def test_the_name_to_check_the_server_by_can_be_given(pki: Pki, name: str | None, *, trusted: bool) -> None:
    api = ApiServer()
    async with serve(api, pki.server()):
        cluster = {
            "certificate-authority": "ca.crt",
            **({"tls-server-name": name} if name else {}),
        }
        path = kubeconfig(pki.folder, api.url.replace("127.0.0.1", "localhost"), None, cluster)
        async with connected(path, None) as sut:
            with contextlib.nullcontext() if trusted else pytest.raises(ApiUnreachableError, match="verify failed"):
                await sut.get(PATH)


# ---- what is wrong is said

CONFIG = "current-context: here\ncontexts: [{name: here, context: {cluster: c, user: u}}]\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(None, "cannot be read: No such file", id="missing"),
        pytest.param("a: [", "is not YAML", id="not YAML"),
        pytest.param(b"\xff\xfe\x00", "is not YAML", id="not text"),
        pytest.param("just words", "holds no kubeconfig", id="no mapping"),
        pytest.param("", "holds no kubeconfig", id="empty"),
        pytest.param("{a: 1}", "current-context", id="no current context"),
        pytest.param("{current-context: x, contexts: []}", "contexts", id="no contexts"),
        pytest.param(CONFIG + "clusters: []\nusers: []", "clusters", id="no cluster"),
        pytest.param(
            CONFIG + "clusters: [{name: c, cluster: {}}]\nusers: []",
            "names no server",
            id="no server",
        ),
        pytest.param(
            CONFIG + "clusters: 7\nusers: 8",
            "is not a usable kubeconfig",
            id="numbers for lists",
        ),
        pytest.param(
            CONFIG + "clusters: [{name: c, cluster: {server: 'ftp://x'}}]\nusers: [{name: u, user: {}}]",
            "'ftp://x' is not a server's URL; expected https://HOST:PORT",
            id="not a URL",
        ),
        pytest.param(
            CONFIG + "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority: gone.crt}}]\n"
            "users: [{name: u, user: {}}]",
            "gone.crt",
            id="no certificate authority",
        ),
        pytest.param(
            CONFIG + "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: aGVsbG8=}}]\n"
            "users: [{name: u, user: {}}]",
            "certificates or key cannot be used",
            id="a certificate authority that is none",
        ),
        pytest.param(
            CONFIG + "clusters: [{name: c, cluster: {server: 'http://x', proxy-url: 'socks5://p:1'}}]\n"
            "users: [{name: u, user: {}}]",
            "proxy-url 'socks5://p:1' is not supported",
            id="a proxy of another kind",
        ),
        pytest.param(
            CONFIG + "clusters: [{name: c, cluster: {server: 'http://x'}}]\n"
            "users: [{name: u, user: {exec: {apiVersion: v1, command: /no/such/plugin}}}]",
            "the exec plug-in /no/such/plugin cannot be run: No such file",
            id="no plug-in",
        ),
        pytest.param(
            CONFIG + "clusters: [{name: c, cluster: {server: 'http://x'}}]\n"
            "users: [{name: u, user: {exec: {command: x}}}]",
            "'apiVersion' is missing",
            id="half a plug-in",
        ),
        pytest.param(
            CONFIG + "clusters: [{name: c, cluster: {server: 'http://x'}}]\n"
            "users: [{name: u, user: {tokenFile: gone}}]",
            "gone",
            id="no token file",
        ),
    ],
)
async def test_a_bad_kubeconfig_is_one_clear_line(tmp_path: Path, content: str | bytes | None, message: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        await kube.connect(path, None, user_agent="x")
    assert f"--kubeconfig {path}" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_outside_a_cluster_a_kubeconfig_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"not a pod with a service account .*; give --kubeconfig FILE",
    ):
        await kube.connect(None, None, user_agent="x", pod=kube.Pod(tmp_path, {}))


@pytest.mark.parametrize("master", ["", "ftp://x", "http://", "http://[::"])
async def test_a_bad_master_is_named(tmp_path: Path, master: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"--master: .* is not a server's URL; expected https://HOST:PORT",
    ):
        await kube.connect(kubeconfig(tmp_path, "http://x"), master, user_agent="x")
