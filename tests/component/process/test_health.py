"""The health endpoints over genuine sockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from ccm_lb.errors import ConfigError
from ccm_lb.process.health import WORK_PATH, Checks, HealthServer
from ccm_lb.redaction import Secrets
from ccm_lb.settings.config import Config
from tests.controlplane.server import free_ports


def free_port() -> int:
    """One that no outgoing connection takes meanwhile."""
    (port,) = free_ports(1)
    return port


def config(**settings: object) -> Config:
    return Config.model_validate({"cloud_provider": "x", "bind_address": "127.0.0.1", **settings})


@contextlib.asynccontextmanager
async def serving(settings: Config, checks: Checks | None = None) -> AsyncIterator[None]:
    server = HealthServer(settings, checks or Checks(Secrets()), lambda: b"up 1\n")
    await server.start()
    try:
        yield
    finally:
        await server.stop()


class Client:
    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def get(self, path: str) -> tuple[int, str]:
        async with self._session.get(self._base + path) as response:
            return response.status, await response.text()


@pytest.fixture
def checks() -> Checks:
    return Checks(Secrets())


@pytest.fixture
async def client(checks: Checks) -> AsyncIterator[Client]:
    port = free_port()
    async with serving(config(port=port), checks), aiohttp.ClientSession() as session:
        yield Client(session, f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_all_well_is_ok(path: str, client: Client) -> None:
    assert await client.get(path) == (200, "ok")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/livez", 200, id="livez"),
        pytest.param("/healthz", 200, id="healthz-is-for-liveness-as-upstreams"),
        pytest.param("/readyz", 503, id="readyz"),
    ],
)
async def test_an_unready_replica_is_alive(path: str, expected: int, checks: Checks, client: Client) -> None:
    checks.register("cloud", lambda: "not opened yet")
    assert (await client.get(path))[0] == expected


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_a_failed_liveness_check_fails_all_three(path: str, checks: Checks, client: Client) -> None:
    checks.register("watch", lambda: "no event for 600s", live=lambda: "no event for 600s")
    status, body = await client.get(path)
    assert status == 503
    assert "[-]watch failed: no event for 600s" in body


async def test_liveness_may_be_more_patient_than_readiness(checks: Checks, client: Client) -> None:
    checks.register("watch", lambda: "no event for 12 s", live=lambda: None)
    assert (await client.get("/readyz"))[0] == 503
    assert await client.get("/livez?verbose") == (200, "[+]ping ok\n[+]watch ok\nlivez check passed\n")


async def test_a_failure_lists_every_check_without_being_asked(checks: Checks, client: Client) -> None:
    checks.register("api", lambda: None)
    checks.register("cloud", lambda: "401 from the cloud")
    assert await client.get("/readyz") == (
        503,
        "[+]ping ok\n[+]api ok\n[-]cloud failed: 401 from the cloud\nreadyz check failed\n",
    )


async def test_verbose_lists_the_checks(checks: Checks, client: Client) -> None:
    checks.register("api", lambda: None)
    assert await client.get("/readyz?verbose") == (200, "[+]ping ok\n[+]api ok\nreadyz check passed\n")


async def test_a_check_can_be_left_out(checks: Checks, client: Client) -> None:
    checks.register("cloud", lambda: "down")
    checks.register("api", lambda: "down")
    assert await client.get("/readyz?exclude=cloud&exclude=api") == (200, "ok")
    status, body = await client.get("/readyz?exclude=cloud&verbose")
    assert status == 503
    assert "[+]cloud excluded: ok" in body


async def test_leaving_out_what_is_not_there_is_said(client: Client) -> None:
    status, body = await client.get("/readyz?exclude=nosuch&verbose")
    assert status == 200
    assert 'cannot be excluded: no matches for "nosuch"' in body


async def test_one_check_can_be_asked_alone(checks: Checks, client: Client) -> None:
    checks.register("api", lambda: None)
    checks.register("cloud", lambda: "down")
    assert await client.get("/readyz/api") == (200, "ok")
    assert await client.get("/readyz/cloud") == (503, "[-]cloud failed: down\n")
    assert await client.get("/livez/cloud") == (404, "no check is named cloud; there are: ping\n")


async def test_a_check_is_asked_anew_each_time_and_replaced_by_its_name(checks: Checks, client: Client) -> None:
    reasons = ["starting"]
    checks.register("cloud", lambda: reasons[0] if reasons else None)
    assert checks.failures() == {"cloud": "starting"}
    assert (await client.get("/readyz"))[0] == 503
    reasons.clear()
    assert (await client.get("/readyz"))[0] == 200
    checks.register("cloud", lambda: "other")
    assert checks.failures() == {"cloud": "other"}
    assert checks.failures(live=True) == {}


async def test_metrics_are_served_in_prometheus_text_format(client: Client) -> None:
    assert await client.get("/metrics") == (200, "up 1\n")


async def test_another_path_is_not_found(client: Client) -> None:
    assert (await client.get("/debug"))[0] == 404


# ---- ports


async def test_a_port_that_is_taken_is_named_with_its_flag() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigError, match=rf"^cannot listen on 127\.0\.0\.1:{port}: .*address already in use.*--port"
        ):
            async with serving(config(port=port)):
                pass


async def test_an_address_that_the_machine_does_not_have_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^cannot listen on \[2001:db8::1\]:\d+: .*--bind-address"):
        async with serving(config(bind_address="2001:db8::1", port=free_port())):
            pass


async def test_no_port_means_no_server() -> None:
    async with serving(config(port=0)):
        pass


async def test_ipv6_is_served() -> None:
    port = free_port()
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", port))
        except OSError:
            pytest.skip("this machine has no IPv6 loopback address")
    async with serving(config(bind_address="::1", port=port)), aiohttp.ClientSession() as session:
        assert await Client(session, f"http://[::1]:{port}").get("/livez") == (200, "ok")


async def test_a_stopped_server_frees_its_port() -> None:
    port = free_port()
    for _ in range(2):
        async with serving(config(port=port)):
            pass


async def test_stopping_what_was_not_started_does_nothing() -> None:
    await HealthServer(config(), Checks(Secrets()), lambda: b"").stop()


# ---- HTTPS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
    ]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*command, *names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl, which makes the certificate of this test, is not installed")
    return cert, key


async def test_https_is_served_beside_http(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    plain, secure = free_port(), free_port()
    settings = config(port=plain, secure_port=secure, tls_cert_file=cert, tls_private_key_file=key)
    trust = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(cert)))
    async with serving(settings), aiohttp.ClientSession(connector=trust) as session:
        assert await Client(session, f"https://127.0.0.1:{secure}").get("/livez") == (200, "ok")
        assert await Client(session, f"http://127.0.0.1:{plain}").get("/livez") == (200, "ok")
    await asyncio.sleep(0)  # lets the connector's transports end


async def test_https_without_a_certificate_of_ours_makes_one_that_only_those_take_who_do_not_verify() -> None:
    secure = free_port()
    async with serving(config(port=0, secure_port=secure)):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
            assert await Client(session, f"https://127.0.0.1:{secure}").get("/livez") == (200, "ok")
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await Client(session, f"https://127.0.0.1:{secure}").get("/livez")
    await asyncio.sleep(0)  # lets the connectors' transports end


@pytest.mark.parametrize("broken", ["missing", "no-pem", "swapped"])
async def test_an_unusable_certificate_is_named_and_nothing_listens(
    broken: str, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    cert, key = certificate
    if broken == "missing":
        cert = tmp_path / "none.pem"
    elif broken == "no-pem":
        cert = tmp_path / "cert.pem"
        cert.write_text("no certificate", encoding="utf-8")
    else:
        cert, key = key, cert
    port = free_port()
    settings = config(port=port, secure_port=free_port(), tls_cert_file=cert, tls_private_key_file=key)
    with pytest.raises(
        ConfigError, match=rf"^--tls-cert-file {cert} and --tls-private-key-file {key} cannot be used: "
    ):
        async with serving(settings):
            pass
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


async def test_what_a_replica_is_at_is_told_once_it_is_ready_and_can_only_be_read() -> None:
    port = free_port()
    server = HealthServer(config(port=port), Checks(Secrets()), lambda: b"")
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            client = Client(session, f"http://127.0.0.1:{port}")
            assert (await client.get(WORK_PATH))[0] == 503
            server.report(lambda: {"leading": True})
            assert await client.get(WORK_PATH) == (200, '{"leading": true}')
            async with session.post(f"http://127.0.0.1:{port}{WORK_PATH}") as response:
                assert response.status == 405
    finally:
        await server.stop()


async def test_what_a_replica_is_at_is_told_without_secrets() -> None:
    port, secrets = free_port(), Secrets()
    secrets.add("the-token-of-the-cloud")
    server = HealthServer(config(port=port), Checks(secrets), lambda: b"")
    await server.start()
    server.report(lambda: {"services": [{"reason": "refused: the-token-of-the-cloud", "failures": 2, "since": None}]})
    try:
        async with aiohttp.ClientSession() as session:
            told = await Client(session, f"http://127.0.0.1:{port}").get(WORK_PATH)
    finally:
        await server.stop()
    assert told == (200, '{"services": [{"reason": "refused: ***", "failures": 2, "since": null}]}')
