"""A fakecloud as a process of a test's own."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from fakecloud import networks
from fakecloud.client import Client

_ENDING = 5.0  # seconds from SIGTERM to SIGKILL


class StartFailedError(Exception):
    """fakecloud did not start; the message has what it said."""


class FakecloudProcess:
    """
    One fakecloud: a free port, a random token, addresses that no other one has; `with` starts and ends it.

    `args` are further options of `fakecloud serve`; with a `--pool` of one's own among them, that one is used. Variables that begin
    with FAKECLOUD_ are not looked at. It ends with the process that started it, however that one ends.
    """

    def __init__(self, args: Sequence[str] = (), *, timeout: float = 30.0) -> None:
        self._args = tuple(args)
        self._timeout = timeout
        self._stack = contextlib.ExitStack()
        self._networks: networks.Networks | None = None
        self.url = ""
        self.token = ""

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fakecloud-")))
            reserved = stack.enter_context(networks.reserved())
            pool = () if _names_pool(self._args) else (f"--pool={reserved.pool}",)
            log = stack.enter_context((folder / "log").open("w+b"))
            ready = folder / "ready.json"
            options = ("--port=0", f"--ready-file={ready}", "--log-level=warning", "--until-stdin-ends")
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, "-m", "fakecloud", "serve", *options, *pool, *self._args],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("FAKECLOUD_")},
                # Ctrl-C is for the tests: what they clear up they still find.
                start_new_session=True,
            )
            stack.callback(_end, process)
            self._wait(process, ready, folder / "log")
            said = json.loads(ready.read_text())
            self.url, self.token, self._networks = said["url"], said["token"], reserved
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def client(self) -> Client:
        """A client of it."""
        return Client(self.url, self.token)

    def node(self, number: int) -> str:
        """An address of loopback, number 1 to 254, for a machine behind its load balancers; no other fakecloud has it."""
        if self._networks is None:
            raise RuntimeError("fakecloud is not started: use `with`")
        return self._networks.node(number)

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to find it."""
        return {"FAKECLOUD_URL": self.url, "FAKECLOUD_TOKEN": self.token}

    def _wait(self, process: "subprocess.Popen[bytes]", ready: Path, log: Path) -> None:
        last = time.monotonic() + self._timeout
        while not ready.exists():
            if process.poll() is not None:
                raise StartFailedError(f"fakecloud ended with {process.returncode}: {_said(log)}")
            if time.monotonic() > last:
                raise StartFailedError(f"fakecloud is not ready after {self._timeout:g} s: {_said(log)}")
            time.sleep(0.01)


def _names_pool(args: Sequence[str]) -> bool:
    # --addresses other than loopback have networks of their own kind.
    return any(one.partition("=")[0] in ("--pool", "--addresses") for one in args)


def _said(log: Path) -> str:
    return log.read_text(errors="replace").strip() or "it said nothing"


def _end(process: "subprocess.Popen[bytes]") -> None:
    with process:
        process.terminate()
        try:
            process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
