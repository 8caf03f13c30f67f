"""
The image, built from the Dockerfile as it is, on a machine without a registry or a container engine.

buildah builds by chroot. What FROM names cannot be pulled, so Debian's own Python stands in under that name: made by mmdebstrap, and kept
in the cache outside the checkout.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.controlplane.cache import Cache

ROOT: Final = Path(__file__).parents[2]
NAME: Final = "localhost/ccm-lb"

# Debian's release with the Python version that the Dockerfile asks for.
_SUITE: Final = "trixie"
_BASE_PACKAGES: Final = "ca-certificates,python3-minimal,libpython3-stdlib,python3-venv,python-is-python3"
_LEFT_OUT: Final = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_BASE_RECIPE: Final = (
    "FROM scratch\nADD base.tar /\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
)
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"

PROGRAMS: Final = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "crun": "crun"}


class ImageError(Exception):
    """A command failed; the text says which, and its last words."""


def missing() -> list[str]:
    """The Debian packages whose programs this machine lacks, sorted."""
    return sorted(package for program, package in PROGRAMS.items() if shutil.which(program) is None)


class Builder:
    """Builds into a store of its own below `folder`; `close` unmounts and forgets everything but the cached base."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = [f"--root={folder / 'storage'}", f"--runroot={folder / 'run'}"]
        self._containers: list[str] = []

    def build(self, source: Path = ROOT, *, target: str | None = None, name: str = NAME) -> str:
        """Build `source`'s Dockerfile, to its last stage or `target`; the image's name. Raises ImageError."""
        base = self._base_name(source)
        if base not in self._buildah("images", "--format", "{{.Name}}:{{.Tag}}").split():
            self._build_base(base)
        options = ["--pull-never", "--layers", f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro"]
        if target is not None:
            options.append(f"--target={target}")
        self._buildah("bud", "--isolation=chroot", "--quiet", *options, f"--tag={name}", str(source))
        return name

    def describe(self, name: str = NAME) -> dict[str, Any]:
        """The image's configuration as OCI has it: Entrypoint, Cmd, User, Env, Labels, ExposedPorts."""
        described = json.loads(self._buildah("inspect", "--type=image", name))
        config: dict[str, Any] = described["OCIv1"]["config"]
        return config

    def mount(self, name: str = NAME) -> Path:
        """The image's root file system, as a folder of this machine until `close`."""
        container = self._buildah("from", "--pull-never", name).strip()
        self._containers.append(container)
        return Path(self._buildah("mount", container).strip())

    def archive(self, path: Path, name: str = NAME) -> Path:
        """The image as an OCI archive, compressed as registries take it; `podman load`, `ctr images import` and skopeo read it."""
        level = ["--compression-format=zstd", "--compression-level=19"]
        self._buildah("push", "--quiet", *level, name, f"oci-archive:{path}:{name.rpartition('/')[2]}")
        return path

    def saved(self, path: Path, reference: str, name: str = NAME) -> Path:
        """The image as `docker save` writes it, under the name `reference`: quick, for those who read it on this machine."""
        self._buildah("push", "--quiet", name, f"docker-archive:{path}:{reference}")
        return path

    def close(self) -> None:
        for container in self._containers:
            self._buildah("umount", container)
            self._buildah("rm", container)
        self._containers.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _base_name(self, source: Path) -> str:
        """What FROM asks for, with the registry that is meant where none is named."""
        names = set(re.findall(r"^FROM (\S+:\S+)", (source / "Dockerfile").read_text(), re.MULTILINE))
        if len(names) != 1:
            raise ImageError(f"the Dockerfile's stages come from {sorted(names)}; expected one base")
        return f"docker.io/library/{names.pop()}"

    def _build_base(self, name: str) -> None:
        folder = self._folder / "base"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "base.tar").hardlink_to(_base())
        (folder / "Dockerfile").write_text(_BASE_RECIPE)
        self._buildah("bud", "--isolation=chroot", "--quiet", f"--tag={name}", str(folder))

    def _buildah(self, *arguments: str) -> str:
        return _output(["buildah", *self._store, *arguments])


def _base() -> Path:
    """Debian with Python."""
    return debian(_SUITE, "minbase", _BASE_PACKAGES)


def debian(suite: str, variant: str, packages: str, *, keep_as: str = "") -> Path:
    """A root file system of Debian's as a tar, out of the cache (`keep_as`, else the suite's name) or made now."""
    kept = Cache.from_environment().root / "image" / f"{keep_as or suite}.tar"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        scratch = kept.with_name(f".{kept.stem}-new.tar")
        options = [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        mirror = _mirror()
        _output(["mmdebstrap", f"--variant={variant}", f"--include={packages}", *options, suite, str(scratch), mirror])
        scratch.replace(kept)
    return kept


def _mirror() -> str:
    """The one that this machine's own packages come from."""
    listed = _output(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]).split()
    debian = [uri for uri in listed if uri.rstrip("/").endswith("/debian")]
    if not debian:
        raise ImageError(f"no mirror of Debian among apt's sources: {listed}")
    return debian[0]


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(f"{' '.join(command)}: {done.stderr.strip()[-2000:] or done.returncode}")
    return done.stdout
