"""Genuine Keystone, Neutron and Octavia on loopback, as processes: no compute, no agents, no packets."""

import asyncio
import base64
import getpass
import json
import os
import secrets
import shutil
import sqlite3
import string
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml

from tests.controlplane.process import Process
from tests.controlplane.server import free_ports
from tests.openstack import environment

_SERVICES = ("keystone", "neutron", "octavia")
_KEPT = (
    *("db", "keystone.sqlite", "fernet-keys", "credential-keys"),
    *("ca.pem", "ca.key", "cae.key", "clouds.yaml", "ids.json"),
)


class StartError(Exception):
    """A service did not come up; the text holds the end of its log."""


class OpenStack:
    """
    One cloud; `async with` starts it from the snapshot (about ten seconds) and kills it.

    Nothing in it belongs to an event loop. The processes die with the thread that started them. Ports and floating IPs stay DOWN, as
    there are no agents; everything else is as a user of a real cloud sees it.
    """

    def __init__(self, *, expiration: int = 3600) -> None:
        """`expiration`: seconds that a token lives."""
        self.directory = Path(tempfile.mkdtemp(prefix="openstack-"))
        self.ports = dict(zip((*_SERVICES, "database"), free_ports(4), strict=True))
        self._expiration = expiration
        self._socket = self.directory / "db.sock"
        self._database = self._process("mariadb", self._mariadb())
        self._processes = {
            name: self._process(name, [*self._python("serve.py"), name, str(self._conf(name)), str(self.ports[name])])
            for name in _SERVICES
        }

    # ---- what tests ask for

    @property
    def clouds_yaml(self) -> Path:
        """Credentials by name, see services/bootstrap.py."""
        return self.directory / "clouds.yaml"

    @property
    def ids(self) -> dict[str, Any]:
        """The ids of what the operator made."""
        found: dict[str, Any] = json.loads((self.directory / "ids.json").read_text())
        return found

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.ports[service]}"

    def cloud(self, name: str) -> dict[str, Any]:
        """An entry of clouds.yaml."""
        found: dict[str, Any] = yaml.safe_load(self.clouds_yaml.read_text())["clouds"][name]
        return found

    def sql(self, statement: str) -> None:
        """A change that no API allows, such as what a crashed worker leaves behind."""
        self._run("sql", [*self._client(), "-e", statement])

    # ---- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start from the snapshot; returns when all three answer."""
        try:
            with tarfile.open(environment.snapshot()) as tar:
                tar.extractall(self.directory, filter="data")
            self._relocate()
            self._write_settings()
            self._database.start()
            self._processes["keystone"].start()
            await self._database_ready()
            for name in ("neutron", "octavia"):
                self._processes[name].start()
            await self._answering(*_SERVICES)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Kill them (their data is thrown away) and remove their folder."""
        for process in (*self._processes.values(), self._database):
            await process.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    async def make_snapshot(self) -> None:
        """Tables, users and networks from nothing (half a minute), into the file that `start` unpacks."""
        try:
            self._write_settings()
            self._keys()
            self._certificates()
            await asyncio.gather(asyncio.to_thread(self._keystone_tables), self._other_tables())
            for process in self._processes.values():
                process.start()
            await self._answering(*_SERVICES)
            ports = [str(self.ports[name]) for name in ("keystone", "octavia", "neutron")]
            await asyncio.to_thread(
                self._run, "bootstrap", [*self._python("bootstrap.py"), str(self.directory), *ports]
            )
            for process in (*self._processes.values(), self._database):
                await process.stop(grace=30.0)
            partial = environment.snapshot().with_suffix(".partial")
            with tarfile.open(partial, "w") as tar:
                for name in _KEPT:
                    tar.add(self.directory / name, name)
            partial.rename(environment.snapshot())
        finally:
            await self.stop()

    # ---- parts

    def _process(self, name: str, command: Sequence[str]) -> Process:
        return Process(name, command, self.directory / f"{name}.out")

    def _python(self, script: str) -> list[str]:
        return [str(environment.python()), "-W", "ignore", str(environment.SERVICES / script)]

    def _conf(self, name: str) -> Path:
        return self.directory / f"{name}.conf"

    def _run(self, name: str, command: Sequence[str], stdin: str = "") -> None:
        log = self.directory / f"{name}.out"
        with log.open("a") as out:
            done = subprocess.run(
                command,
                input=stdin.encode(),
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )
        if done.returncode:
            raise StartError(f"{name} ended with {done.returncode}:\n{log.read_text(errors='replace')[-3000:]}")

    def _write_settings(self) -> None:
        values = {"folder": self.directory, "expiration": self._expiration, **self.ports}
        for name in _SERVICES:
            text = (environment.SERVICES / f"{name}.conf").read_text()
            self._conf(name).write_text(string.Template(text).substitute(values))
        shutil.copy(environment.folder() / "venv" / "etc" / "neutron" / "api-paste.ini", self.directory)

    def _relocate(self) -> None:
        """The ports are other ones each time."""
        urls = {
            "identity": self.url("keystone") + "/v3",
            "load-balancer": self.url("octavia"),
            "network": self.url("neutron"),
        }
        connection = sqlite3.connect(self.directory / "keystone.sqlite")
        with connection:
            for kind, url in urls.items():
                where = "service_id in (select id from service where type = ?)"
                connection.execute(f"update endpoint set url = ? where {where}", (url, kind))  # noqa: S608
        connection.close()
        clouds = yaml.safe_load(self.clouds_yaml.read_text())
        for entry in clouds["clouds"].values():
            entry["auth"]["auth_url"] = urls["identity"]
        self.clouds_yaml.write_text(yaml.safe_dump(clouds, sort_keys=False))

    async def _answering(self, *names: str, timeout: float = 150.0) -> None:
        async with aiohttp.ClientSession() as session:
            try:
                async with asyncio.timeout(timeout):
                    for name in names:
                        while not await self._answers(session, name):
                            if self._processes[name].pid is None:
                                raise StartError(f"{name} ended:\n{self._processes[name].last_words()}")
                            await asyncio.sleep(0.1)
            except TimeoutError:
                raise StartError(f"{name} is not ready:\n{self._processes[name].last_words()}") from None

    async def _answers(self, session: aiohttp.ClientSession, name: str) -> bool:
        try:
            async with session.get(self.url(name)) as answer:
                return answer.status < 500
        except aiohttp.ClientError:
            return False

    # ---- the database

    def _mariadb(self) -> list[str]:
        return [
            environment.program("mariadbd"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.directory / 'db'}",
            f"--socket={self._socket}",
            f"--port={self.ports['database']}",
            "--bind-address=127.0.0.1",
            # A database that is thrown away need not survive a power cut.
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
            "--innodb-doublewrite=0",
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=8M",
            "--skip-log-bin",
            "--performance-schema=OFF",
            "--max-connections=300",
        ]

    def _client(self) -> list[str]:
        return [environment.program("mariadb"), "--no-defaults", "-S", str(self._socket), "-u", "root"]

    async def _database_ready(self, timeout: float = 60.0) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not await asyncio.to_thread(self._database_answers):
                    if self._database.pid is None:
                        raise StartError(f"mariadb ended:\n{self._database.last_words()}")
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise StartError(f"mariadb is not ready:\n{self._database.last_words()}") from None

    def _database_answers(self) -> bool:
        return subprocess.run([*self._client(), "-e", "select 1"], capture_output=True).returncode == 0

    async def _other_tables(self) -> None:
        install = [
            environment.program("mariadb-install-db"),
            "--no-defaults",
            f"--user={getpass.getuser()}",
            f"--datadir={self.directory / 'db'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            "--innodb-log-file-size=8M",
        ]
        await asyncio.to_thread(self._run, "mariadb-install", install)
        self._database.start()
        await self._database_ready()
        names = ("octavia", "octavia_persistence", "neutron")
        made = [f"create database {name} character set utf8mb4" for name in names]
        for host in ("127.0.0.1", "localhost"):
            made += [f"create user o@{host} identified by 'o'", f"grant all on *.* to o@{host}"]
        await asyncio.to_thread(self._run, "mariadb-client", self._client(), ";\n".join([*made, ""]))
        await asyncio.gather(asyncio.to_thread(self._octavia_tables), asyncio.to_thread(self._neutron_tables))

    def _manage(self, program: str, name: str, *arguments: str) -> None:
        self._run(
            program, [str(environment.python().parent / program), "--config-file", str(self._conf(name)), *arguments]
        )

    def _octavia_tables(self) -> None:
        self._manage("octavia-db-manage", "octavia", "upgrade", "head")
        self._manage("octavia-db-manage", "octavia", "upgrade_persistence")

    def _neutron_tables(self) -> None:
        self._manage("neutron-db-manage", "neutron", "upgrade", "heads")

    def _keystone_tables(self) -> None:
        self._manage("keystone-manage", "keystone", "db_sync")
        url = self.url("keystone") + "/v3"
        urls = [f"--bootstrap-{interface}-url={url}" for interface in ("public", "internal", "admin")]
        region = "--bootstrap-region-id=RegionOne"
        self._manage("keystone-manage", "keystone", "bootstrap", "--bootstrap-password=admin", region, *urls)

    # ---- keys

    def _keys(self) -> None:
        """As keystone-manage makes them, without two more starts of it."""
        for name in ("fernet-keys", "credential-keys"):
            (self.directory / name).mkdir(mode=0o700)
            for index in ("0", "1"):
                (self.directory / name / index).write_bytes(base64.urlsafe_b64encode(secrets.token_bytes(32)))

    def _certificates(self) -> None:
        openssl, key, authority = environment.program("openssl"), self.directory / "ca.key", self.directory / "ca.pem"
        subject = ["-subj", "/CN=octavia-test", "-keyout", str(key), "-out", str(authority)]
        self._run("openssl", [openssl, *["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650"], *subject])
        locked = ["-in", str(key), "-out", str(self.directory / "cae.key")]
        self._run("openssl", [openssl, *["rsa", "-aes256", "-passout", "pass:foobar"], *locked])
