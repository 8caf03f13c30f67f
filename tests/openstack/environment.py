"""
The services' Python packages and first databases: made when absent, kept outside the checkout.

They have an environment of their own, since what they pin is not what the controller needs; it is made from requirements.lock.
The databases with tables, users and networks are a file that every start unpacks.
"""

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.controlplane.cache import Cache

HERE = Path(__file__).parent
SERVICES = HERE / "services"
_ROOT = HERE.parents[1]
_LOCK = HERE / "requirements.lock"
PROGRAMS = ("mariadbd", "mariadb-install-db", "openssl")


class MissingError(Exception):
    """Something that only the machine's owner can install is not there."""


def folder() -> Path:
    """Where the environment for this lock file and this Python is, or would be."""
    key = hashlib.sha256(_LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    return Cache.from_environment().root / "openstack" / key


def python() -> Path:
    """The interpreter of the environment."""
    return folder() / "venv" / "bin" / "python"


def snapshot() -> Path:
    """The first databases, of exactly these services' settings."""
    digest = hashlib.sha256()
    for path in sorted(SERVICES.iterdir()):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return folder() / f"snapshot-{digest.hexdigest()[:16]}.tar"


def missing() -> list[str]:
    """The programs that this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]


def program(name: str) -> str:
    """Its path. Raises MissingError."""
    found = shutil.which(name, path=_path())
    if found is None:
        raise MissingError(f"{name} is not installed; on Debian: apt-get install mariadb-server openssl")
    return found


def install() -> None:
    """Make the environment unless it is there. Raises subprocess.CalledProcessError with what the installer says."""
    done = folder() / "installed"
    if done.exists():
        return
    uv = _ROOT / ".tools" / "bin" / "uv"
    subprocess.run([uv, "venv", "-q", "--clear", "--python", sys.executable, folder() / "venv"], check=True)
    subprocess.run(
        [uv, "pip", "sync", "-q", "--compile-bytecode", "--require-hashes", "--python", python(), _LOCK], check=True
    )
    done.touch()


@contextlib.contextmanager
def only_builder() -> Iterator[None]:
    """Wait until no other process builds; the lock ends with the process, however it ends."""
    folder().mkdir(parents=True, exist_ok=True)
    with (folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _path() -> str:
    return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
