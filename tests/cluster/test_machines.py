"""What the cluster is made of goes with the process that made it, however that ends."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import machines
from tests.packets import netns

_MAKE = """
import pathlib, sys
from tests.cluster.machines import Node
node = Node("node1", pathlib.Path(sys.argv[1]))
node.process("sleeper", ["sleep", "600"]).start()
print(node.pid, flush=True)
sys.stdin.read()
node.close()
"""


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process that has made a node, and the node's process 1."""
    if reason := machines.unsupported():
        pytest.skip(reason)
    command = [sys.executable, "-c", _MAKE, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as making:
        assert making.stdout is not None
        line = making.stdout.readline()
        assert line, "no node was made"
        yield making, int(line)
        making.kill()


def _left(run: str, folder: Path) -> list[str]:
    """What is there of that run: cgroups, mounts, and processes that have its folder in their command line."""
    cgroups = [str(one) for own in machines.own_cgroups() for one in own.iterdir() if one.name.startswith(run)]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]
    processes = []
    for process in Path("/proc").iterdir():
        try:
            command = (process / "cmdline").read_text() if process.name.isdigit() else ""
        except OSError:
            continue
        if str(folder) in command and "pytest" not in command and "-c\0" not in command:
            processes.append(command)
    return cgroups + mounts + processes


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_nothing_of_a_machine_stays_behind(
    maker: tuple["subprocess.Popen[str]", int], tmp_path: Path, how: str
) -> None:
    making, first = maker
    run, links = netns.run_name(making.pid), Path("/sys/class/net")
    assert _left(run, tmp_path), "else the test would see nothing"
    assert Path(f"/proc/{first}").exists()
    assert not (links / "node1").exists()
    if how == "killed":
        making.send_signal(signal.SIGKILL)
    else:
        assert making.stdin is not None
        making.stdin.close()
    deadline = time.monotonic() + 60
    while (left := _left(run, tmp_path)) or Path(f"/proc/{first}").exists():
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
