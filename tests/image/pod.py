"""A container of the built image, without a container engine."""

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.harness import container

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclasses.dataclass(frozen=True)
class Image:
    """A mounted image: its root, and its configuration as OCI has it."""

    root: Path
    config: Mapping[str, Any]

    def command(self, *arguments: str, volumes: Mapping[str, Path] | None = None, **variables: str) -> Sequence[str]:
        """
        The command line that starts the image's entry point with `arguments` as a container; it needs root.

        `volumes` are folders of this machine by their place in the container; `variables` are what a pod adds to the image's own.
        """
        files = {
            str(Path(place, file.name)): str(file)
            for place, folder in (volumes or {}).items()
            for file in folder.iterdir()
        }
        spec: container.Spec = {
            "uid": int(str(self.config["User"]).partition(":")[0]),
            "environment": dict(one.split("=", 1) for one in self.config["Env"]) | variables,
            "root": str(self.root),
            "folders": [],
            "files": files,
            "scratch": [],
        }
        command = [*self.config["Entrypoint"], *(arguments or self.config["Cmd"])]
        return [sys.executable, "-I", "-S", container.__file__, json.dumps(spec), *command]


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
