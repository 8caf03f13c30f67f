"""Getting in: by kubeconfig, by --master, as a pod."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccm_lb.kube import connect
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
