"""Wrong configuration ends with one line and exit code 2; servers that are away or refuse are waited for, and /readyz says why."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.faultproxy.effects import Answer
from tests.faultproxy.proxy import FaultProxy
from tests.faultproxy.rules import Match, Rule
from tests.harness import pod
from tests.harness.controller import Controller
from tests.harness.stack import Stack


async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, pod.command(*arguments), capture_output=True, text=True, timeout=120, check=False
    )


def assert_one_line(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr
    (line,) = result.stderr.strip().splitlines()
    for word in words:
        assert word in line, line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--frobnicate"], ["--frobnicate"]),
        (["--cloud-provider=acme"], ["acme", "fakecloud"]),
        (
            ["--cloud-provider=fakecloud", "--concurrent-service-syncs=many"],
            ["--concurrent-service-syncs", "many", "whole number"],
        ),
        (["--cloud-provider=fakecloud", "--config=/no/such/file"], ["/no/such/file"]),
        (["--cloud-provider=fakecloud", "--cloud-config=/no/such/file"], ["/no/such/file"]),
        ([], ["--cloud-provider", "fakecloud"]),
    ],
    ids=["unknown flag", "unknown backend", "wrong type", "no such file", "no such cloud file", "nothing at all"],
)
async def test_wrong_flags_end_with_one_line(arguments: list[str], words: list[str]) -> None:
    assert_one_line(await run("run", *arguments), *words)


async def test_an_unknown_key_of_the_file_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "ccm-lb.yaml"
    file.write_text("cloud-provider: fakecloud\nleader-elekt: false\n")
    assert_one_line(await run("run", f"--config={file}"), str(file), "leader-elekt", "leader-elect")


async def test_an_unknown_key_of_the_clouds_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text("tokn: abc\n")
    result = await run("run", "--cloud-provider=fakecloud", f"--cloud-config={file}")
    assert_one_line(result, str(file), "tokn")


@pytest.mark.parametrize("content", [None, "{not yaml", "clusters: []"], ids=["missing", "no YAML", "empty"])
async def test_an_unusable_kubeconfig_is_named(tmp_path: Path, content: str | None) -> None:
    kubeconfig, cloud = tmp_path / "kubeconfig", tmp_path / "cloud.yaml"
    cloud.write_text("token: abc\n")
    if content is not None:
        kubeconfig.write_text(content)
    flags = ("--cloud-provider=fakecloud", f"--cloud-config={cloud}", f"--kubeconfig={kubeconfig}", "--port=0")
    assert_one_line(await run("run", *flags), str(kubeconfig))


async def unready_reason(controller: Controller, check: str) -> str:
    """What /readyz says of a check that is red, once it has a reason of its own."""
    async with asyncio.timeout(90):
        while True:
            status, text = await controller.get(f"/readyz/{check}?verbose")
            if status == 503 and "not " not in text.partition(check)[2][:25]:
                return text
            assert controller.pid is not None, controller.last_words()
            await asyncio.sleep(0.1)


async def test_an_api_server_that_is_away_is_waited_for(stack: Stack, api_proxy: FaultProxy) -> None:
    kubeconfig = stack.through(api_proxy)
    await api_proxy.refuse()
    async with stack.controller(kubeconfig=kubeconfig) as controller:
        controller.start()
        assert api_proxy.url.rpartition(":")[2] in await unready_reason(controller, "api")
        assert (await controller.get("/livez"))[0] == 200, "a restart would not help"
        await api_proxy.accept()
        await controller.wait_ready()
        assert "Traceback" not in controller.log.read_text()


async def test_refused_credentials_are_said_and_not_tried_hot(stack: Stack, api_proxy: FaultProxy) -> None:
    kubeconfig = stack.through(api_proxy)
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"] = {"token": "wrong"}
    kubeconfig.write_text(json.dumps(content))
    async with stack.controller(kubeconfig=kubeconfig) as controller:
        controller.start()
        assert "401" in await unready_reason(controller, "api") or controller.logged("Unauthorized")
        api_proxy.forget()
        await asyncio.sleep(5)
        assert len(api_proxy.requests) <= 15, "a handful, where a busy loop sends thousands"
        assert controller.pid is not None
        assert "Traceback" not in controller.log.read_text()


async def test_a_cloud_that_is_away_is_waited_for(stack: Stack, cloud_proxy: FaultProxy) -> None:
    await cloud_proxy.refuse()
    async with stack.controller(cloud_url=cloud_proxy.url) as controller:
        controller.start()
        assert cloud_proxy.url.rpartition(":")[2] in await unready_reason(controller, "cloud")
        await cloud_proxy.accept()
        await controller.wait_ready()


async def test_a_cloud_that_refuses_the_token_is_said(stack: Stack) -> None:
    config = stack.cloud.config(token="wrong")
    async with Controller(stack.directory, stack.kubeconfig, config) as controller:
        controller.start()
        assert "token" in (await unready_reason(controller, "cloud")).lower()


async def test_without_the_right_to_read_the_clusters_id_it_asks_for_a_name(
    stack: Stack, api_proxy: FaultProxy
) -> None:
    api_proxy.add(Rule(Answer(403, "Forbidden"), Match(path="/namespaces/kube-system$")))
    async with stack.controller(kubeconfig=stack.through(api_proxy)) as controller:
        controller.start()
        assert await controller.wait_ended() == 2
        assert "--cluster-name" in controller.last_words()
        assert "Traceback" not in controller.log.read_text()
    named = stack.controller("--cluster-name=blue", kubeconfig=stack.through(api_proxy), name="named")
    async with named:
        await named.start_ready()


async def test_a_busy_port_is_named(stack: Stack) -> None:
    async with stack.controller() as first:
        await first.start_ready()
        flags = (
            "--cloud-provider=fakecloud",
            f"--cloud-config={stack.cloud.config()}",
            f"--kubeconfig={stack.kubeconfig}",
        )
        assert_one_line(await run("run", *flags, "--bind-address=127.0.0.1", f"--port={first.port}"), str(first.port))
