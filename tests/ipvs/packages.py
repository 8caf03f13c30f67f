"""What the guest is made of: Debian's cloud kernel, a static busybox and ipvsadm, downloaded and unpacked, not installed."""

import dataclasses
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.controlplane.cache import Cache

# Installed on this machine: to run the guest, and to be copied into it.
PROGRAMS: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "xtables-legacy-multi": "iptables",
    "ipset": "ipset",
    "ip": "iproute2",
    "dash": "dash",
    "apt-get": "apt",
    "dpkg": "dpkg",
}
# For the guest alone; ipvsadm with the libraries that are not on every machine.
_GUEST: Final = ("busybox-static", "ipvsadm", "libnl-3-200", "libnl-genl-3-200", "libpopt0")
_KERNEL: Final = "linux-image-cloud-amd64"


class PackageError(Exception):
    """A package can't be had; the text says which, and what to do."""


@dataclasses.dataclass(frozen=True)
class Unpacked:
    """`kernel` holds boot/ and lib/modules/, `programs` bin/busybox, sbin/ipvsadm and libraries."""

    kernel: Path
    programs: Path


def missing() -> list[str]:
    """The Debian packages whose programs this machine lacks, sorted."""
    return sorted(package for program, package in PROGRAMS.items() if shutil.which(program) is None)


def unpacked() -> Unpacked:
    """
    Out of the cache if they are there, else downloaded; with new lists of packages where those of this machine are missing or stale.

    Raises:
        PackageError: they are in no cache, and apt can't download them.
    """
    try:
        return _unpacked()
    except PackageError:
        _run("apt-get", "update", "--quiet")
        return _unpacked()


def _unpacked() -> Unpacked:
    kernel = _kernel()
    return Unpacked(_fetched(kernel, [kernel]), _fetched("programs", _GUEST))


def _fetched(name: str, packages: Sequence[str]) -> Path:
    place = Cache.from_environment().root / "ipvs" / name
    if not place.exists():
        scratch = place.with_name(f".{name}-new")
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "debs").mkdir(parents=True)
        _run("apt-get", "download", "--quiet", *packages, directory=scratch / "debs")
        for package in sorted((scratch / "debs").glob("*.deb")):
            _run("dpkg", "-x", str(package), str(scratch), directory=scratch)
        shutil.rmtree(scratch / "debs")
        scratch.replace(place)
    return place


def _kernel() -> str:
    """The package behind linux-image-cloud-amd64, whose name changes with each security update."""
    found = re.search(r"Depends: (linux-image-\S+)", _run("apt-cache", "depends", _KERNEL))
    if found is None:
        raise PackageError(f"apt knows no {_KERNEL}: run `apt-get update`")
    return found.group(1)


def _run(*command: str, directory: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PackageError(f"{' '.join(command)}: {last}; run `apt-get update`, or look whether the mirror is there")
    return done.stdout
