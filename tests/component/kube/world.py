"""The client of the Kubernetes API, its kubeconfig and credentials, and a server that it asks."""

from __future__ import annotations

import contextlib
import ssl
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from ccm_lb.kube import api as kube_api
from ccm_lb.kube import authorization, connect, credentials
from ccm_lb.redaction import Secrets
from tests.component.recording import RecordingServer, VirtualClock

OK = {"kind": "Service", "metadata": {"name": "web"}}
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


class ApiServer(RecordingServer):
    """Answers those whose Authorization is in `accepted` (None: everybody)."""

    def __init__(self) -> None:
        super().__init__(web.json_response(OK))
        self.accepted: set[str | None] | None = None

    def refusal(self, request: web.Request) -> web.Response | None:
        if self.accepted is None or request.headers.get("Authorization") in self.accepted:
            return None
        return status(401, "Unauthorized", "Unauthorized")

    @property
    def tokens(self) -> list[str | None]:
        return [request.headers.get("Authorization") for request in self.seen]


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
    secrets: Secrets | None = None,
    **options: Any,
) -> AsyncIterator[kube_api.KubeApi]:
    known = secrets or Secrets()
    present = authorization.Credentials(source or credentials.Fixed(None), clock, known)
    endpoint = kube_api.Endpoint(api.url, ssl.create_default_context(), present, known, timeout=timeout)
    sut = kube_api.KubeApi(endpoint, clock, user_agent="ccm-lb/test", **options)
    yield sut
    await sut.close()


@contextlib.asynccontextmanager
async def connected(*args: Any, **options: Any) -> AsyncIterator[connect.KubeApi]:
    sut = await connect.connect(*args, user_agent="ccm-lb/test", **{"secrets": Secrets(), **options})
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


V1 = "client.authentication.k8s.io/v1"


def plugin(folder: Path, script: str) -> str:
    path = folder / "plugin"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def prints(status_: Mapping[str, Any]) -> str:
    return f"print(json.dumps({{'apiVersion': '{V1}', 'kind': 'ExecCredential', 'status': {dict(status_)!r}}}))"
