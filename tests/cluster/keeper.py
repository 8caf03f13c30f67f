"""
Keeps what a machine needs of this one, and takes it away again: `keeper.py CGROUPS COMMAND...`, CGROUPS separated by colons.

Makes the cgroups, starts the command in them, and waits for it or for the end of its own input, whichever comes first. The input ends
with the process that started it, however that ends; so a killed test run leaves no cgroup behind, let alone a process.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_LEASH = Path(__file__).parents[1] / "controlplane" / "leash.py"
_PATIENCE = 30.0  # seconds for the kernel to end the last process of a cgroup


def main() -> None:
    cgroups = [Path(one) for one in sys.argv[1].split(":") if one]
    for cgroup in cgroups:
        make(cgroup)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    leash = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid())]
    child = subprocess.Popen([*leash, *sys.argv[2:]], stdin=subprocess.DEVNULL)
    ended = os.pidfd_open(child.pid)
    select.select([ended, sys.stdin], [], [])
    child.kill()
    child.wait()
    for cgroup in cgroups:
        remove(cgroup)


def make(cgroup: Path) -> None:
    cgroup.mkdir(exist_ok=True)
    # A new cpuset of cgroup v1 is empty, and admits nobody.
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (cgroup / name).exists():
            (cgroup / name).write_text((cgroup.parent / name).read_text())


def remove(cgroup: Path) -> None:
    """Take it away with those below it, as soon as nobody is in them any more."""
    deadline = time.monotonic() + _PATIENCE
    while cgroup.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError:  # somebody is in there still
                time.sleep(0.02)
                break


if __name__ == "__main__":
    main()
