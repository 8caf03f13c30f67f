"""
Network namespaces as hosts of a test, and sockets in them.

A socket stays in the namespace it was made in, whoever uses it: so the tests' own event loop is client, pod and relay at once,
without a process for each.
"""

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.controlplane.process import Process

PREFIX = "ccmlb"
_RUN = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
_START_TIME = 19  # of the fields behind the command's closing bracket in /proc/PID/stat


class Namespace:
    """One host, by its name in /run/netns; made and removed by `create` and `remove`. `path` is where it is found if not by its name."""

    def __init__(self, name: str, path: Path | None = None) -> None:
        self.name = name
        self.host = name.rsplit("-", 1)[-1]
        self._path = path or _RUN / name

    def run(self, *command: str, text: str = "") -> str:
        """Run a short command here and return its output; AssertionError with what it complained about."""
        with self.entered():
            return _output([tool(command[0]), *command[1:]], text)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is in the namespace until the end of the block, which must not await anything."""
        with _opened(Path("/proc/thread-self/ns/net")) as home, _opened(self._path) as there:
            _setns(there)
            try:
                yield
            finally:
                _setns(home)

    def open_socket(self, address: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """A non-blocking socket of this host, of the family of `address`."""
        with self.entered():
            made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
        made.setblocking(False)
        return made

    def bound(self, address: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
        """The same, bound there."""
        made = self.open_socket(address, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        return made

    def lost_first_packets(self) -> int:
        """How often TCP here had to open a connection with a second packet, since the namespace was made; probes count as well."""
        with self.entered():
            text = Path("/proc/thread-self/net/netstat").read_text()
        names, values = (line.split() for line in text.splitlines() if line.startswith("TcpExt:"))
        return int(values[names.index("TCPSynRetrans")])

    def sysctl(self, **settings: int) -> None:
        """Settings under /proc/sys/net, dots as double underscores: `ipv4__ip_forward=1`."""
        with self.entered():
            for name, value in settings.items():
                Path("/proc/sys/net", *name.split("__")).write_text(str(value))

    def remove(self) -> None:
        """Take it away, and with it every interface, route and rule in it; once is enough."""
        if (_RUN / self.name).exists():
            _output([tool("ip"), "netns", "delete", self.name])


def run_name(pid: int | None = None) -> str:
    """
    What the names of this run's namespaces begin with: its process id and when that process started, so that another process
    that is given the same id one day is not taken for it.
    """
    mine = os.getpid() if pid is None else pid
    return f"{PREFIX}-{mine}-{_started(mine)}"


def create(names: Sequence[str]) -> dict[str, Namespace]:
    """New namespaces of this run, by host name; loopback is up."""
    made = {name: Namespace(f"{run_name()}-{name}") for name in names}
    try:
        for namespace in made.values():
            _output([tool("ip"), "netns", "add", namespace.name])
            _output([tool("ip"), "-n", namespace.name, "link", "set", "lo", "up"])
    except BaseException:
        for namespace in made.values():
            namespace.remove()
        raise
    return made


def stale(names: Sequence[str]) -> list[str]:
    """Those of `names` that belong to a run of ours whose process has ended."""
    return [name for name in names if (run := _run_of(name)) is not None and _started(run[0]) != run[1]]


def sweep() -> list[str]:
    """Remove what runs that were killed left behind; their names."""
    found = stale([entry.name for entry in _RUN.iterdir()]) if _RUN.is_dir() else []
    for name in found:
        Namespace(name).remove()
    return found


def tool(name: str) -> str:
    """The path of a program. AssertionError when it is missing; `conftest` has skipped with a word before that."""
    found = shutil.which(name)
    assert found is not None, f"no {name} in PATH"
    return found


def _run_of(name: str) -> tuple[int, str] | None:
    parts = name.split("-")
    if len(parts) != 4 or parts[0] != PREFIX or not parts[1].isdigit():
        return None
    return int(parts[1]), parts[2]


def _started(pid: int) -> str:
    """When that process started, in ticks since boot; empty when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_START_TIME]
    except OSError:
        return ""


def _output(command: Sequence[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip() or done.returncode}"
    return done.stdout


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _setns(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class HostProcess(Process):
    """A child process of the tests that lives on that host: it inherits the namespace that it is started in."""

    def __init__(self, host: Namespace, name: str, command: Sequence[str], log: Path) -> None:
        super().__init__(name, command, log)
        self._host = host

    def start(self) -> None:
        with self._host.entered():
            super().start()
