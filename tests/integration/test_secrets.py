"""No secret leaves the process, whatever a cloud or an API server answers: not in an object, a log, a metric or an endpoint."""

import asyncio
import base64
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from ccm_lb.commands.main import execute
from tests.faultproxy.effects import Page
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import echoing, objects, pod
from tests.harness.controller import Controller
from tests.harness.stack import SETTLE, Stack

PIECE = 14
"""Characters of a secret in a row that nobody is to see."""

ENDPOINTS = (
    "livez",
    "readyz",
    "healthz",
    "metrics",
    "statusz",
    "flagz",
    "configz",
    "debug/pprof/",
    "readyz/cloud",
    "work",
)
RESOURCES = ("services", "events", "nodes", "coordination.k8s.io/v1/leases")


def shown(secret: str, text: str) -> str:
    """What of a secret stands in a text, plain or encoded."""
    codes = [base64.b64encode(b"x" * before + secret.encode()).decode()[before + 2 : -4] for before in range(3)]
    for form in (secret, secret.encode().hex(), *codes):
        length = PIECE if form == secret else 2 * PIECE
        for at in range(len(form) - length + 1):
            if form[at : at + length] in text:
                return form[at : at + length]
    return ""


async def assert_nothing_shown(stack: Stack, controller: Controller, hidden: Mapping[str, str]) -> None:
    """None of these secrets stands in any object, in the log, or in what the port answers."""
    texts = {"the log": controller.log.read_text(errors="replace")}
    for name in ENDPOINTS:
        texts[f"/{name}"] = (await controller.get(f"/{name}?verbose"))[1]
    for resource in RESOURCES:
        for one in await stack.kube.list(resource):
            texts[f"{resource} {one['metadata']['name']}"] = json.dumps(one, ensure_ascii=False)
    for where, text in texts.items():
        for name, secret in hidden.items():
            assert not (piece := shown(secret, text)), f"{where} shows {piece!r} of {name}: {excerpt(text, piece)}"


def excerpt(text: str, piece: str) -> str:
    at = text.find(piece)
    return text[max(0, at - 200) : at + 200]


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A folder that a process in a container sees as it is now, as a Secret's."""
    folder = tmp_path / "told"
    folder.mkdir(mode=0o755)
    return folder


def write(path: Path, text: str) -> str:
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.chmod(0o644)
    fresh.replace(path)
    return text


async def wait_echoed(cloud: echoing.EchoingCloud, times: int) -> None:
    wanted = cloud.echoes + times
    async with asyncio.timeout(SETTLE):
        while cloud.echoes < wanted:
            await asyncio.sleep(0.05)


async def wait_events(stack: Stack, names: Iterable[str], reasons: Sequence[str]) -> None:
    """Wait until each of the Services was told one of these."""
    for name in names:
        async with asyncio.timeout(SETTLE):
            while not any(reason in reasons for _, reason, _ in await stack.events(name)):
                await asyncio.sleep(0.1)


FAILURES = ("SyncLoadBalancerFailed", "WaitingForLoadBalancer", "UnknownServer")


@pytest.mark.parametrize("flags", [["-v=0"], ["-v=9", "--log-format=json"]], ids=["usual", "everything"])
async def test_no_answer_of_the_cloud_brings_a_token_out_also_after_it_was_rotated(
    stack: Stack, told: Path, flags: list[str]
) -> None:
    names = [f"web-{number}" for number in range(len(echoing.FORMS))]
    await stack.add_node("n1")
    async with echoing.EchoingCloud() as cloud:
        old = write(told / "token", secrets.token_urlsafe(32))
        config = stack.cloud.config(f"http://127.0.0.1:{cloud.port}", token=None, tokenFile=str(told / "token"))
        mounts = pod.Mounts(folders=(told,))
        async with Controller(stack.directory, stack.kubeconfig, config, *flags, mounts=mounts) as controller:
            await controller.start_ready()
            for number, name in enumerate(names):
                await stack.create(objects.service(name, {"http": 18200 + number}))
            await wait_events(stack, names, FAILURES)
            hidden = {"the first token": old, "the API server's token": api_token(stack.kubeconfig)}
            await assert_nothing_shown(stack, controller, hidden)

            new = write(told / "token", secrets.token_urlsafe(32))
            cloud.refused = old
            await touch_all(stack, names, "rotated")
            async with asyncio.timeout(SETTLE):
                while not any(new in one for one in cloud.credentials):
                    await asyncio.sleep(0.05)
            await touch_all(stack, names, "again")
            await wait_echoed(cloud, len(names))
            await controller.terminate()  # what was to be written is
            assert old in str(cloud.credentials)
            await assert_nothing_shown(stack, controller, {**hidden, "the second token": new})


async def touch_all(stack: Stack, names: Iterable[str], value: str) -> None:
    for name in names:
        await stack.patch(name, {"metadata": {"annotations": {"example.com/touched": value}}})


def api_token(kubeconfig: Path) -> str:
    token: str = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    return token


async def test_a_replica_that_cannot_get_ready_shows_no_token_either(stack: Stack, told: Path) -> None:
    token = write(told / "token", secrets.token_urlsafe(32))
    async with echoing.EchoingCloud() as cloud:
        cloud.well = False
        config = stack.cloud.config(f"http://127.0.0.1:{cloud.port}", token=None, tokenFile=str(told / "token"))
        mounts = pod.Mounts(folders=(told,))
        async with Controller(stack.directory, stack.kubeconfig, config, "-v=9", mounts=mounts) as controller:
            controller.start()
            for _ in range(4):
                await wait_echoed(cloud, 1)
                await assert_nothing_shown(stack, controller, {"the token": token})
            await controller.wait_logged("not ready, will be retried")
            assert "cloud" in (await controller.get("/readyz"))[1]


@pytest.mark.parametrize("cut", [0, 20, 60], ids=["whole", "begun", "nearly whole"])
async def test_a_proxy_of_the_api_server_that_echoes_the_credential_does_not_bring_it_out(
    stack: Stack, api_proxy: FaultProxy, told: Path, cut: int
) -> None:
    """Its page is cut where the credential stands: what is left of it is a secret still."""
    kubeconfig = stack.through(api_proxy)
    token = api_token(stack.kubeconfig)
    page = f"{'x' * (196 - cut)} {token}" if cut else f"refused: Bearer {token}"
    await stack.add_node("n1")
    async with stack.controller("-v=9", kubeconfig=kubeconfig) as controller:
        api_proxy.add(Rule(Page(page.encode(), 502), Match(path="/namespaces/kube-system$"), times=4))
        api_proxy.add(Rule(Page(page.encode(), 500), Match(method="PATCH", path="/services/web/status"), times=3))
        api_proxy.add(Rule(Page(page.encode(), 403), Match(method="POST", path="/events"), times=1))
        controller.start()
        await controller.wait_logged("not ready, will be retried")
        await assert_nothing_shown(stack, controller, {"the token": token})
        await controller.wait_ready()
        await stack.create(objects.service("web"))
        await stack.wait_event("web", "SyncLoadBalancerFailed")
        await stack.wait_served("web")
        await assert_nothing_shown(stack, controller, {"the token": token})


BACKEND = """
import base64
import pathlib

from pydantic import BaseModel

from ccm_lb.backends.base import BackendConfig, LoadBalancerBackend


class Config(BackendConfig):
    url: str
    password: str
    session_file: pathlib.Path


class Answer(BaseModel):
    id: int


class Sessions(LoadBalancerBackend[Config]):
    config_model = Config

    async def get_load_balancer(self, service):
        return None

    async def ensure_load_balancer(self, service, nodes):
        session = self.context.config.session_file.read_text()
        response = await self.context.transport.request(
            "PUT",
            self.context.config.url,
            body={"password": self.context.config.password},
            headers={"X-Auth-Token": session},
            params={"access_token": base64.urlsafe_b64encode(session.encode()).decode()},
        )
        text = response.body.decode()
        if response.status == 422:
            Answer(id=text[-60:])
        raise RuntimeError(text) from ValueError(f"{self.context.config!r} {response.headers}")

    async def update_load_balancer(self, service, nodes):
        raise RuntimeError(str(self.context))

    async def ensure_load_balancer_deleted(self, service):
        pass
"""


def installed(folder: Path) -> pod.Mounts:
    """The backend `sessions`, for the controller of one test."""
    files = {
        "sessions_backend.py": BACKEND,
        "sessions-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: sessions\nVersion: 1.0\n",
        "sessions-1.0.dist-info/entry_points.txt": "[ccm_lb.backends]\nsessions = sessions_backend:Sessions\n",
    }
    for name, content in files.items():
        path = folder / "installed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    inside = {f"/opt/installed/{name}": folder / "installed" / name for name in files}
    return pod.Mounts(inside, {"PYTHONPATH": "/opt/installed"}, (folder / "told",))


async def test_a_backend_that_tells_nothing_of_its_passwords_and_sessions_shows_none(stack: Stack, told: Path) -> None:
    session = write(told / "session", secrets.token_urlsafe(32))
    url_password, password = (secrets.token_urlsafe(24) for _ in range(2))
    names = [f"web-{number}" for number in range(len(echoing.FORMS))]
    await stack.add_node("n1")
    async with echoing.EchoingCloud() as cloud:
        config = stack.directory / "sessions.json"
        url = f"http://joe:{url_password}@127.0.0.1:{cloud.port}/v1/x"
        config.write_text(json.dumps({"url": url, "password": password, "sessionFile": str(told / "session")}))
        flags = ("--cloud-provider=sessions", "-v=9")
        mounts = installed(told.parent)
        async with Controller(stack.directory, stack.kubeconfig, config, *flags, mounts=mounts) as controller:
            await controller.start_ready()
            for number, name in enumerate(names):
                await stack.create(objects.service(name, {"http": 18200 + number}))
            await wait_events(stack, names, FAILURES)
            hidden = {"the session": session, "the URL's password": url_password, "the password": password}
            await assert_nothing_shown(stack, controller, hidden)
            hidden["the next session"] = write(told / "session", secrets.token_urlsafe(32))
            await touch_all(stack, names, "again")
            await wait_echoed(cloud, len(names))
            await controller.terminate()
            await assert_nothing_shown(stack, controller, hidden)


@pytest.mark.parametrize("command", ["explain", "config"])
async def test_commands_show_no_token_of_a_cloud_that_echoes(
    stack: Stack, told: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    token = write(told / "token", secrets.token_urlsafe(32))
    await stack.create(objects.service("web"))
    async with echoing.EchoingCloud() as cloud:
        cloud.well = False
        config = stack.cloud.config(f"http://127.0.0.1:{cloud.port}", token=None, tokenFile=str(told / "token"))
        flags = ("--cloud-provider=fakecloud", f"--cloud-config={config}", f"--kubeconfig={stack.kubeconfig}")
        named = [f"{stack.namespace}/web"] if command == "explain" else []
        for form in ("text", "json"):
            for _ in range(4):
                await asyncio.to_thread(execute, [command, *named, *flags, f"--output={form}"])
        text = "".join(capsys.readouterr())
        assert text
        assert not shown(token, text), text
        assert not shown(api_token(stack.kubeconfig), text), text
