"""Getting in: by kubeconfig, by --master, as a pod."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccm_lb.kube import connect
from ccm_lb.redaction import MASK, Secrets
from tests.component.kube.world import OK, PATH, V1, ApiServer, connected, kubeconfig, plugin, prints


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
    async with connected(None, api.url.removeprefix("http://"), pod=connect.Pod(tmp_path, {})) as sut:
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


@pytest.mark.parametrize(
    ("user", "secret"),
    [
        ({"token": "the-token-itself"}, "the-token-itself"),
        ({"tokenFile": "my-token"}, "from-file-only"),
        ({"username": "u", "password": "the-password"}, "the-password"),
        ({"exec": {"apiVersion": V1, "command": "./plugin"}}, "from-plugin-only"),
        (
            {
                "exec": {
                    "apiVersion": V1,
                    "command": "./plugin",
                    "env": [{"name": "ACME_SECRET", "value": "of-the-env"}],
                }
            },
            "of-the-env",
        ),
        ({"exec": {"apiVersion": V1, "command": "./plugin", "args": ["--password=of-the-args"]}}, "of-the-args"),
    ],
    ids=["token", "token file", "password", "plug-in", "environment of a plug-in", "argument of a plug-in"],
)
async def test_what_a_kubeconfig_brings_is_a_secret(
    api: ApiServer, tmp_path: Path, user: Mapping[str, Any], secret: str
) -> None:
    (tmp_path / "my-token").write_text("from-file-only\n")
    plugin(tmp_path, prints({"token": "from-plugin-only"}))
    secrets = Secrets()
    async with connected(kubeconfig(tmp_path, api.url, user), None, secrets=secrets):
        assert secrets.redact(f"it is {secret}") == f"it is {MASK}"


async def test_a_token_that_was_renewed_is_a_secret_and_so_is_the_one_before(api: ApiServer, tmp_path: Path) -> None:
    token = tmp_path / "my-token"
    token.write_text("the-first-token\n")
    secrets = Secrets()
    async with connected(kubeconfig(tmp_path, api.url, {"tokenFile": "my-token"}), None, secrets=secrets) as sut:
        await sut.get(PATH)
        token.write_text("the-second-token\n")
        api.accepted = {"Bearer the-second-token"}
        await sut.get(PATH)
    assert api.tokens[-1] == "Bearer the-second-token"
    assert secrets.redact("the-first-token the-second-token") == f"{MASK} {MASK}"
