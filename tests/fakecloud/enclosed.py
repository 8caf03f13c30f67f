"""A fakecloud that lives in a network namespace, the servers behind it and its clients."""

import importlib.util
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.fakecloud.clients import DEADLINE, Json
from tests.fakecloud.namespaces import inside, within

LBS = "/v1/load-balancers"
SERVER = """
import socket, sys, threading
name, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
listening = socket.socket(family, socket.SOCK_STREAM)
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind((address, port)); listening.listen(64)
print("ready", flush=True)
while True:
    client, peer = listening.accept()
    client.sendall(f"{name} {peer[0]} {client.getsockname()[0]}".encode())
    client.close()
"""
needs_netlink = pytest.mark.skipif(
    importlib.util.find_spec("pyroute2") is None, reason="needs pyroute2: pip install pyroute2"
)


class Cloud:
    """A fakecloud inside a namespace, called from inside of it."""

    def __init__(self, namespace: str, ready: Json) -> None:
        self.namespace = namespace
        self._ready = ready

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Json]:
        def ask() -> tuple[int, Json]:
            request = urllib.request.Request(  # noqa: S310 - fakecloud's own URL
                self._ready["url"] + path, None if body is None else json.dumps(body).encode(), method=method
            )
            request.add_header("Authorization", f"Bearer {self._ready['token']}")
            try:
                with urllib.request.urlopen(request, timeout=DEADLINE) as answer:  # noqa: S310 - fakecloud's own URL
                    content, status = answer.read(), answer.status
            except urllib.error.HTTPError as error:
                content, status = error.read(), error.code
            return status, json.loads(content) if content else {}

        return inside(self.namespace, ask)


class Servers:
    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, namespace: str, name: str, address: str, port: int) -> subprocess.Popen[str]:
        command = [*within(namespace), sys.executable, "-c", SERVER, name, address, str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


def fetch(namespace: str, address: str, port: int, source: str = "", patience: float = DEADLINE) -> str:
    """What the server says to a client in the namespace; the error's name when there is no server."""

    def connect_and_read() -> str:
        try:
            with socket.create_connection((address, port), patience, (source, 0) if source else None) as client:
                received = b""
                while part := client.recv(1000):
                    received += part
                return received.decode()
        except OSError as error:
            return type(error).__name__

    return inside(namespace, connect_and_read)


def until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)
