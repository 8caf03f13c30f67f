"""What the guest is made of: Debian's cloud kernel and a static busybox, downloaded and unpacked, not installed."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.controlplane.cache import Cache

# Installed on this machine: to run the guest, and to be copied into it.
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "xtables-legacy-multi": "iptables",
    "ipset": "ipset",
    "ip": "iproute2",
    "dash": "dash",
    "apt-get": "apt",
    "dpkg": "dpkg",
}


class PackageError(Exception):
    """A package can't be had; the text says which, and what to do."""


def missing() -> list[str]:
    """The Debian packages whose programs this machine lacks, sorted."""
    return sorted(package for program, package in PROGRAMS.items() if shutil.which(program) is None)


def unpacked() -> Path:
    """
    A folder with boot/, lib/modules/ and bin/busybox, out of the cache if it is there.

    Raises:
        PackageError: apt does not know the packages or can't download them.
    """
    kernel = _kernel()
    place = Cache.from_environment().root / "ipvs" / kernel
    if not place.exists():
        scratch = place.with_name(f".{kernel}-new")
        shutil.rmtree(scratch, ignore_errors=True)
        (scratch / "debs").mkdir(parents=True)
        _run("apt-get", "download", "--quiet", kernel, "busybox-static", directory=scratch / "debs")
        for package in sorted((scratch / "debs").glob("*.deb")):
            _run("dpkg", "-x", str(package), str(scratch), directory=scratch)
        shutil.rmtree(scratch / "debs")
        scratch.replace(place)
    return place


def _kernel() -> str:
    """The package behind linux-image-cloud-amd64, whose name changes with each security update."""
    found = re.search(r"Depends: (linux-image-\S+)", _run("apt-cache", "depends", "linux-image-cloud-amd64"))
    if found is None:
        raise PackageError("apt knows no linux-image-cloud-amd64: run `apt-get update`")
    return found.group(1)


def _run(*command: str, directory: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=directory, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise PackageError(f"{' '.join(command)}: {last}; run `apt-get update`, or look whether the mirror is there")
    return done.stdout
