"""
Run a command that dies with the process that asked for it: `leash.py PARENT_PID COMMAND...`.

The kernel sends SIGKILL when the parent's thread that started us ends, however it ends, so a killed test run leaves no etcd
behind. A file of its own and not a preexec_fn, because forked Python code between fork and exec may deadlock in a threaded
parent.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Set the signal, look whether the parent is still there (it may have died before), and become the command."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone")
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 -- becoming the command is the purpose


if __name__ == "__main__":
    main()
