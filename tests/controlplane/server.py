"""Runs a genuine kube-apiserver and etcd on loopback for tests and demos."""

import asyncio
import dataclasses
import json
import secrets
import shutil
import signal
import socket
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Any, Literal, Self

import aiohttp

from tests.controlplane import credentials
from tests.controlplane.kube import Kube, SocketFactory
from tests.controlplane.process import Process

AuditEvent = dict[str, Any]
AuditLevel = Literal["Metadata", "Request", "RequestResponse"]

_HOST = "127.0.0.1"
# Above Linux's default range of ephemeral ports, so that no outgoing connection takes the port of a server that restarts.
_PORTS = range(61000, 65500)


class StartError(Exception):
    """etcd or kube-apiserver did not come up; the text holds the end of its log."""


@dataclasses.dataclass(frozen=True)
class Site:
    """Where a control plane runs: its address, how a process is started there, and how this process connects to it."""

    address: str = _HOST
    process: Callable[[str, Sequence[str], Path], Process] = Process
    sockets: SocketFactory | None = None


class ControlPlane:
    """
    One etcd and one kube-apiserver: RBAC on, TLS, an audit log, ServiceAccount tokens, a cluster admin's kubeconfig.

    `async with` starts it (4 to 6 s) and stops it; nothing in it belongs to an event loop, so it may be started in one and
    used in another. The processes die with the thread that started them.
    """

    def __init__(
        self,
        binaries: Mapping[str, Path],
        *,
        directory: Path | None = None,
        audit_level: AuditLevel = "Metadata",
        apiserver_flags: Sequence[str] = (),
        site: Site = Site(),
        users: Mapping[str, tuple[str, str]] = {},
    ) -> None:
        self._own_directory = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="controlplane-")) if directory is None else directory
        self.directory.mkdir(parents=True, exist_ok=True)
        self.token = secrets.token_hex(16)
        port, client_port, peer_port = free_ports(3)
        self.url = f"https://{site.address}:{port}"
        self._site = site
        self._users = users
        self.certificate = self.directory / "certs" / "apiserver.crt"
        self.private_key = self.directory / "certs" / "apiserver.key"
        self._audit_level = audit_level
        self._audit_log = self.directory / "audit.log"
        etcd = _etcd_command(binaries["etcd"], self.directory, client_port, peer_port)
        apiserver = [
            *_apiserver_command(binaries["kube-apiserver"], self.directory, site.address, port, client_port),
            *apiserver_flags,
        ]
        self._etcd = site.process("etcd", etcd, self.directory / "etcd.log")
        self._apiserver = site.process("kube-apiserver", apiserver, self.directory / "apiserver.log")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def ca(self) -> Path:
        """
        What verifies the server: kube-apiserver signs its certificate with a CA whose key it forgets, and keeps both in one file.
        """
        return self.certificate

    @property
    def kubeconfig(self) -> Path:
        """The cluster admin's kubeconfig; written by `start`."""
        return self.directory / "kubeconfig"

    @property
    def apiserver_pid(self) -> int | None:
        """The API server's process id while it runs."""
        return self._apiserver.pid

    def kube(self) -> Kube:
        """A new client of the cluster admin."""
        return Kube(self.url, self.token, self.ca, sockets=self._site.sockets)

    async def start(self) -> None:
        """Start both; returns when /readyz answers and the namespace kube-system exists."""
        credentials.write_signing_key(self.directory / "sa.key")
        credentials.write_tokens(self.directory / "tokens.csv", self.token, self._users)
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": self._audit_level}],
        }
        (self.directory / "audit-policy.json").write_text(json.dumps(policy))
        try:
            self._etcd.start()
            await self.start_apiserver()
            content = credentials.kubeconfig(self.url, self.token, self.ca)
            credentials.write_kubeconfig(self.kubeconfig, content)
            async with self.kube() as kube:
                await kube.wait_for("namespaces", "kube-system", bool)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Kill both (their data is thrown away, so nothing is worth waiting for) and remove our own folder."""
        await self._apiserver.stop()
        await self._etcd.stop()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    async def start_apiserver(self, timeout: float = 200.0) -> None:
        """Start a stopped API server on its old port and wait until it is ready."""
        self._apiserver.start()
        try:
            async with asyncio.timeout(timeout):
                while not await self._ready():
                    for process in (self._etcd, self._apiserver):
                        if process.pid is None:
                            raise StartError(f"{process.name} ended:\n{process.last_words()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            words = self._apiserver.last_words()
            raise StartError(f"kube-apiserver is not ready after {timeout:g} s:\n{words}") from None

    async def kill_apiserver(self) -> None:
        """SIGKILL it; etcd keeps the data."""
        await self._apiserver.stop()

    async def stop_apiserver(self) -> None:
        """SIGTERM it, as a rolling update does: it drains and closes its watches first, for 20 s at most."""
        await self._apiserver.stop(grace=20.0)

    async def restart_apiserver(self) -> None:
        """Kill it and wait for the new one."""
        await self.kill_apiserver()
        await self.start_apiserver()

    async def restart(self) -> None:
        """Kill both, as a machine that loses its power, and wait for the new ones."""
        await self.kill_apiserver()
        await self._etcd.stop()
        self._etcd.start()
        await self.start_apiserver()

    def pause_apiserver(self) -> None:
        """Freeze it: connections stay open and nothing answers, until `resume_apiserver`."""
        self._apiserver.signal(signal.SIGSTOP)

    def resume_apiserver(self) -> None:
        """Let it go on."""
        self._apiserver.signal(signal.SIGCONT)

    def audit_position(self) -> int:
        """Where the audit log ends now; for `audit_events(since=...)`."""
        return self._audit_log.stat().st_size if self._audit_log.exists() else 0

    def audit_events(self, since: int = 0) -> list[AuditEvent]:
        """
        The audit events written after `since`, in the order of completion; a long-running watch has two, by `stage`.

        An event is written before its answer is sent, except for the end of a watch.
        """
        with self._audit_log.open("rb") as log:
            log.seek(since)
            return [json.loads(line) for line in log if line.endswith(b"\n")]

    def audit_tail(self) -> "AuditTail":
        """What is written to the audit log from now on."""
        return AuditTail(self._audit_log, self.audit_position())

    async def service_account_kubeconfig(self, namespace: str, name: str, server_url: str | None = None) -> Path:
        """A kubeconfig with a TokenRequest token of an existing ServiceAccount, for this server or a proxy before it."""
        async with self.kube() as kube:
            token = await kube.token(namespace, name)
        url = server_url or self.url
        content = credentials.kubeconfig(url, token, self.ca if url.startswith("https:") else None, name)
        return credentials.write_kubeconfig(
            self.directory / f"kubeconfig-{namespace}-{name}-{secrets.token_hex(4)}", content
        )

    async def _ready(self) -> bool:
        if not (self.certificate.exists() and self.private_key.exists()):
            return False
        try:
            context = ssl.create_default_context(cafile=str(self.ca))
        except ssl.SSLError:
            return False  # the certificate is being written
        timeout = aiohttp.ClientTimeout(total=10.0)
        connector = aiohttp.TCPConnector(ssl=context, socket_factory=self._site.sockets)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get(self.url + "/readyz") as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


class AuditTail:
    """Reads the audit log piece by piece."""

    def __init__(self, log: Path, position: int) -> None:
        self._log, self._position = log, position

    def read(self) -> list[AuditEvent]:
        """The events since the last call, in the order of completion."""
        if not self._log.exists():
            return []
        with self._log.open("rb") as log:
            log.seek(self._position)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._position += len(whole) + len(newline)
        return [json.loads(line) for line in whole.splitlines()]


def free_ports(count: int) -> list[int]:
    """Distinct loopback TCP ports that nobody listens on."""
    found: list[int] = []
    for port in SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise StartError(f"no {count} free ports on {_HOST} between {_PORTS.start} and {_PORTS.stop}")


def _etcd_command(binary: Path, directory: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://{_HOST}:{client_port}", f"http://{_HOST}:{peer_port}"
    return [
        str(binary),
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # the data is thrown away, and a process that is killed loses nothing by it
        "--log-level=warn",
    ]


def _apiserver_command(binary: Path, directory: Path, address: str, port: int, etcd_port: int) -> list[str]:
    return [
        str(binary),
        f"--etcd-servers=http://{_HOST}:{etcd_port}",
        f"--secure-port={port}",
        f"--bind-address={address}",
        f"--advertise-address={address}",  # else it looks for a default route, which a test machine may lack
        "--endpoint-reconciler-type=none",  # a loopback address is refused as an endpoint of the Service kubernetes
        f"--cert-dir={directory / 'certs'}",
        f"--service-account-key-file={directory / 'sa.key'}",
        f"--service-account-signing-key-file={directory / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-node-port-range=10000-32767",  # room for thousands of Services, below the ephemeral ports
        f"--audit-policy-file={directory / 'audit-policy.json'}",
        f"--audit-log-path={directory / 'audit.log'}",
        "--audit-log-mode=blocking",
        "--audit-log-maxsize=4000",  # MB; a rotated log would lose the oldest events
    ]
