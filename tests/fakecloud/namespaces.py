"""Network namespaces for a test: made with names of their own, removed whatever happens."""

import contextlib
import ctypes
import json
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

T = TypeVar("T")
_NEW_NETWORK = 0x40000000


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def namespaces(*names: str) -> Iterator[list[str]]:
    """Namespaces with loopback up, called after `names` but for this run alone; skips where they can't be made."""
    if shutil.which("ip") is None:
        pytest.skip("needs ip (iproute2): apt-get install iproute2")
    suffix = secrets.token_hex(3)
    made: list[str] = []
    try:
        for name in names:
            unique = f"fk-{name}-{suffix}"
            made.append(unique)
            ended = subprocess.run(["ip", "netns", "add", unique], capture_output=True, text=True, check=False)
            if ended.returncode != 0:
                pytest.skip(f"needs the right to make network namespaces: {ended.stderr.strip()}")
            run("ip", "-n", unique, "link", "set", "lo", "up")
        yield made
    finally:
        for unique in made:
            subprocess.run(["ip", "netns", "delete", unique], capture_output=True, check=False)


def connect(one: str, two: str, one_address: str, two_address: str) -> tuple[str, str]:
    """A cable between two namespaces, with an address (and prefix) at each end; the interfaces' names."""
    left, right = (f"v{secrets.token_hex(4)}" for _ in range(2))
    run("ip", "-n", one, "link", "add", left, "type", "veth", "peer", "name", right, "netns", two)
    for namespace, interface, address in ((one, left, one_address), (two, right, two_address)):
        run("ip", "-n", namespace, "addr", "add", address, "dev", interface)
        run("ip", "-n", namespace, "link", "set", interface, "up")
    return left, right


def inside(namespace: str, function: Callable[[], T]) -> T:
    """Run a function whose sockets belong to the namespace, in a thread that ends with it."""
    results: list[T] = []
    errors: list[BaseException] = []

    def enter_and_run() -> None:
        descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NEW_NETWORK) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again where the test can see it
            errors.append(error)
        finally:
            os.close(descriptor)

    thread = threading.Thread(target=enter_and_run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def within(namespace: str) -> list[str]:
    """A prefix for commands."""
    return ["ip", "netns", "exec", namespace]


def addresses_in(namespace: str) -> set[str]:
    """Of all its interfaces."""
    shown = run("ip", "-n", namespace, "-j", "addr")
    return {info["local"] for link in json.loads(shown) for info in link["addr_info"]}
