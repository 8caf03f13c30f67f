"""A configuration that leads nowhere is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_lb.errors import (
    ConfigError,
)
from ccm_lb.kube import connect
from ccm_lb.redaction import Secrets
from tests.component.kube.world import kubeconfig

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
            CONFIG + "clusters: [{name: c, cluster: {server: 'https://x', certificate-authority-data: '%%%'}}]\n"
            "users: [{name: u, user: {}}]",
            "cluster c: certificate-authority-data is not base64",
            id="a certificate authority that is not packed",
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
        await connect.connect(path, None, user_agent="x", secrets=Secrets())
    assert f"--kubeconfig {path}" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_outside_a_cluster_a_kubeconfig_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError,
        match=r"not a pod with a service account .*; give --kubeconfig FILE",
    ):
        await connect.connect(None, None, user_agent="x", secrets=Secrets(), pod=connect.Pod(tmp_path, {}))


@pytest.mark.parametrize("master", ["", "ftp://x", "http://", "http://[::"])
async def test_a_bad_master_is_named(tmp_path: Path, master: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"--master: .* is not a server's URL; expected https://HOST:PORT",
    ):
        await connect.connect(kubeconfig(tmp_path, "http://x"), master, user_agent="x", secrets=Secrets())


async def test_a_user_in_the_servers_url_is_refused_since_it_would_stand_in_metrics(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has a user in it; expected https://HOST:PORT, and a token"):
        await connect.connect(kubeconfig(tmp_path, "https://joe:pass-word@x"), None, user_agent="x", secrets=Secrets())
