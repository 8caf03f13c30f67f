"""Who is trusted, and who we are, over genuine TLS."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yarl

from ccm_lb.errors import (
    ApiUnreachableError,
)
from ccm_lb.kube import connect
from tests.component.kube.world import OK, PATH, ApiServer, connected, kubeconfig
from tests.component.recording import serve


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
        async with connected(None, None, pod=connect.Pod(tmp_path, environ)) as sut:
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
