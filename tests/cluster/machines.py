"""
Machines of a test: hosts with a network of their own, and nodes, which have mounts, processes and cgroups of their own as well.

All that a machine is ends with its keeper (`keeper.py`), and that with the process that started it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.cluster import keeper
from tests.controlplane.process import Process
from tests.packets import netns
from tests.packets.netns import Namespace, tool

_HERE: Final = Path(__file__).parent
CONTAINERD: Final = "/run/containerd/containerd.sock"
_START: Final = 30.0  # seconds for a machine to be up
# Writes itself into the cgroups and becomes the command.
_ENTER: Final = 'IFS=:; for folder in $1; do echo $$ >"$folder/cgroup.procs"; done; shift; exec "$@"'


class MachineError(Exception):
    """A machine did not come up, or a command on it failed."""


class Machine(Namespace):
    """One host; `close` ends every process on it and all that it was made of."""

    _KIND: Sequence[str] = ()
    _ISOLATED: Sequence[str] = ()

    def __init__(self, host: str, directory: Path, cgroups: Sequence[Path] = ()) -> None:
        self.folder = directory / host
        self.folder.mkdir()
        self._cgroups = ":".join(map(str, cgroups))
        isolate = [tool("unshare"), "--net", "--pid", "--mount", "--uts", *self._ISOLATED, "--fork", "--kill-child"]
        script = ["sh", str(_HERE / "machine.sh"), host, str(self.folder), *self._KIND]
        command = [*self._inside_cgroups(), *isolate, "--mount-proc", "--propagation=private", "--", *script]
        self._log = self.folder / "machine.log"
        with self._log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", str(_HERE / "keeper.py"), self._cgroups, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_up()
            self.pid = _first_of_its_kind(self._keeper.pid)
        except BaseException:
            self.close()
            raise
        super().__init__(f"{netns.run_name()}-{host}", Path(f"/proc/{self.pid}/ns/net"))
        self.host = host

    def close(self) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.close()
        self._keeper.wait()

    def entering(self, *command: str) -> list[str]:
        """The command line that runs `command` inside, among the machine's processes and mounts."""
        namespaces = ["--net", "--pid", "--mount", "--uts", *self._ISOLATED]
        return [
            *self._inside_cgroups(),
            tool("nsenter"),
            f"--target={self.pid}",
            *namespaces,
            "--wdns=/",
            "--",
            *command,
        ]

    def process(self, name: str, command: Sequence[str], log: Path | None = None) -> Process:
        """A process of the machine, not started yet; stopped it may run on until the machine ends."""
        return Process(name, self.entering(*command), log or self.folder / f"{name}.log")

    def output(self, *command: str, timeout: float = 120.0) -> str:
        """What a short command inside prints. MachineError with what it complained of."""
        done = subprocess.run(self.entering(*command), capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise MachineError(f"{self.host}: {' '.join(command)}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def _inside_cgroups(self) -> list[str]:
        return [tool("sh"), "-c", _ENTER, "enter", self._cgroups] if self._cgroups else []

    def _wait_up(self) -> None:
        deadline = time.monotonic() + _START
        while not (self.folder / "up").exists():
            if self._keeper.poll() is not None or time.monotonic() > deadline:
                raise MachineError(f"{self.folder.name} is not up: {self._log.read_text()[-2000:]}")
            time.sleep(0.02)


class Node(Machine):
    """A host that runs containers; needs cgroup v1."""

    _KIND = ("node",)
    _ISOLATED = ("--ipc", "--cgroup")

    def __init__(self, host: str, directory: Path) -> None:
        name = f"{netns.run_name()}-{host}"
        super().__init__(host, directory, [own / name for own in own_cgroups()])

    def containerd(self, *command: str) -> str:
        """What containerd's own command line prints of what the kubelet has made."""
        return self.output("ctr", f"--address={CONTAINERD}", "--namespace=k8s.io", *command)

    def kill_container(self, identity: str) -> None:
        """SIGKILL all its processes."""
        self.containerd("tasks", "kill", "--signal=SIGKILL", "--all", identity)


def own_cgroups() -> list[Path]:
    """The cgroup that this process is in, in each hierarchy that is mounted."""
    mounted = dict(_hierarchies())
    found = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        place = mounted.get(controllers.removeprefix("name="))
        if place is not None:
            found.append(place / path.lstrip("/"))
    return found


def sweep() -> list[Path]:
    """Remove the cgroups of runs whose process has ended, should the keeper have been killed too."""
    found = []
    for own in own_cgroups():
        names = {entry.name for entry in own.iterdir() if entry.is_dir()}
        found += [own / name for name in netns.stale(sorted(names))]
    for cgroup in found:
        keeper.remove(cgroup)
    return found


def _hierarchies() -> Iterator[tuple[str, Path]]:
    """(controllers as in /proc/self/cgroup, where it is mounted); cgroup v2 has none."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, more = line.partition(" - ")
        kind, place = more.split(" ", 1)[0], Path(fields.split(" ")[4])
        if kind in ("cgroup", "cgroup2"):
            yield place.name if kind == "cgroup" else "", place


def _first_of_its_kind(keeper_pid: int) -> int:
    """Process 1 of the machine: the child of unshare, which is the keeper's."""
    unshare = _only_child(keeper_pid)
    return _only_child(unshare)


def _only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def unsupported() -> str | None:
    """Why this machine can't have nodes, or None."""
    if os.geteuid() != 0:
        return "nodes need root: sudo make test-cluster"
    if not any(kind for kind, _ in _hierarchies()):
        return "the kubelet's cgroups are only made for cgroup v1, and this machine has v2 alone"
    for cgroup in own_cgroups():
        if not os.access(cgroup, os.W_OK):
            return f"no cgroup can be made in {cgroup}"
    return None
