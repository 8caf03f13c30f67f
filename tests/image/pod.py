"""A container's process without a container engine: the image's root, read-only, its user, no capability, a pod's environment."""

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"

# Mounts as a kubelet makes them: the root read-only, /proc, /dev, each volume read-only at its place.
_SCRIPT: Final = """
set -eu
root=$1 user=$2 volumes=$3; shift 3
mount --bind "$root" "$root"
while [ "$volumes" -gt 0 ]; do mount --bind "$1" "$root$2"; mount -o remount,bind,ro "$root$2"; shift 2; volumes=$((volumes - 1)); done
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
exec chroot "$root" /usr/bin/setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs "$@"
"""


@dataclasses.dataclass(frozen=True)
class Image:
    """A mounted image: its root, and its configuration as OCI has it."""

    root: Path
    config: Mapping[str, Any]

    def command(self, *arguments: str, volumes: Mapping[str, Path] | None = None, **variables: str) -> Sequence[str]:
        """
        The command line that starts the image's entry point with `arguments` as a container; it needs root.

        `volumes` are files or folders of this machine by their place in the container; `variables` are what a pod adds to the image's own.
        """
        mounts: list[str] = []
        for place, source in (volumes or {}).items():
            inside = self._resolved(place)
            self._make_place(inside, source)
            mounts += [str(source), inside]
        environment = [*self.config["Env"], *(f"{name}={value}" for name, value in variables.items())]
        user = str(self.config["User"]).partition(":")[0]
        return [
            *(
                shutil.which("unshare") or "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "env",
                "-i",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
            ),
            *("sh", "-c", _SCRIPT, "pod", str(self.root), user, str(len(mounts) // 2), *mounts),
            *("/usr/bin/env", "-i", *environment, *self.config["Entrypoint"], *(arguments or self.config["Cmd"])),
        ]

    def _resolved(self, place: str) -> str:
        """The place as it is called inside without links: one such as /var/run leads elsewhere when it is followed from outside."""
        found = Path("/")
        for part in Path(place).parts[1:]:
            found /= part
            if (link := self.root / found.relative_to("/")).is_symlink():
                found = found.parent / link.readlink()
        return str(found)

    def _make_place(self, place: str, source: Path) -> None:
        target = self.root / place.lstrip("/")
        if source.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()


def service_account(folder: Path, token: str, ca: Path) -> Path:
    """The files that a pod finds at SERVICE_ACCOUNT, readable by its user."""
    folder.mkdir()
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(ca.read_bytes())
    (folder / "namespace").write_text("kube-system")
    folder.chmod(0o755)
    for file in folder.iterdir():
        file.chmod(0o644)
    return folder
