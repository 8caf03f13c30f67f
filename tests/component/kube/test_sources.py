"""Where a credential comes from: a file, or a plug-in as client-go runs it."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from ccm_lb.kube import credentials
from tests.component.kube.world import V1, plugin, prints


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
