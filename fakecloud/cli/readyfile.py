"""
The file that says a fakecloud answers: there from then on until the process ends.

It is locked for as long as the process lives. A process that is killed can't remove it, but the kernel takes the lock back: the
next one removes what nobody holds any more, and anybody else can tell by `flock --nonblock`.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path


class ReadyFileError(Exception):
    """The file can't be had; the message says why and what to do."""


class ReadyFile:
    """Claimed at the start, shown while the API answers."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def claim(self) -> None:
        """Remove what a process left that has ended. Raises ReadyFileError while another one holds it."""
        try:
            with self._path.open("rb") as left:
                if not _locked(left.fileno()):
                    raise ReadyFileError(
                        f"--ready-file {self._path}: another fakecloud is ready by it; give another file, or end that one"
                    )
                self._path.unlink(missing_ok=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error(error) from error

    @contextlib.contextmanager
    def shown(self, url: str, token: str) -> Iterator[None]:
        """It appears complete, only its owner can read it, and it is gone afterwards. Raises ReadyFileError."""
        content = json.dumps({"url": url, "token": token, "pid": os.getpid()}) + "\n"
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            draft.unlink(missing_ok=True)
            held = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise self._error(error) from error
        try:
            try:
                _locked(held)
                os.write(held, content.encode())
                draft.replace(self._path)
            except OSError as error:
                draft.unlink(missing_ok=True)
                raise self._error(error) from error
            try:
                yield
            finally:
                self._remove(held)
        finally:
            os.close(held)

    def _remove(self, held: int) -> None:
        # Somebody may have removed or replaced it: what is another's stays.
        with contextlib.suppress(OSError):
            if os.path.samestat(self._path.stat(), os.fstat(held)):
                self._path.unlink()

    def _error(self, error: OSError) -> ReadyFileError:
        return ReadyFileError(
            f"--ready-file {self._path}: {error.strerror}; expected a file in a writable directory with free space"
        )


def _locked(descriptor: int) -> bool:
    """Whether this process has the lock now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
