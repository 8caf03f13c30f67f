"""A child process with a log file that ends when we end; bound to no event loop."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_LEASH = Path(__file__).parent / "leash.py"


class Process:
    """
    One child, started again and again with the same command.

    It is killed when the thread that called `start` ends: call it from the main thread. It gets a session of its own, so
    that Ctrl-C at the terminal reaches the tests first, which then stop it in order.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How it ended, the negative signal number if by a signal; None while it runs or when `stop` has cleared it away."""
        return self._child.poll() if self._child is not None else None

    def start(self) -> None:
        """Start it; the log is appended to."""
        assert self.pid is None, f"{self.name} runs already"
        leashed = [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), *self._command]
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                leashed, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it runs."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    async def stop(self, grace: float = 0.0) -> None:
        """SIGTERM, then SIGKILL after `grace` seconds; with no grace SIGKILL at once. Returns when it is gone."""
        if self._child is None:
            return
        if grace > 0:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            try:
                async with asyncio.timeout(grace):
                    await self._gone()
            except TimeoutError:
                pass
        self.signal(signal.SIGKILL)
        await self._gone()
        self._child = None

    async def _gone(self) -> None:
        while self._child is not None and self._child.poll() is None:
            await asyncio.sleep(0.01)

    def last_words(self) -> str:
        """The end of its log, for an error message."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-8:])
