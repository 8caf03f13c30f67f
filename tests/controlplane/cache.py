"""Where built binaries are kept, outside the checkout, and who may build."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.controlplane.progress import Progress
from tests.controlplane.recipes import Recipe, cache_key


class Cache:
    """
    A folder of finished binaries.

    A binary appears in it by rename, so what is found is whole; a changed pin has another key, so what is found is current.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Cache":
        """`$CONTROLPLANE_CACHE`, else `$XDG_CACHE_HOME/ccm-lb`, else `~/.cache/ccm-lb`."""
        chosen = environment.get("CONTROLPLANE_CACHE")
        if chosen:
            return cls(Path(chosen).expanduser().absolute())
        base = environment.get("XDG_CACHE_HOME")
        return cls((Path(base) if base else Path.home() / ".cache") / "ccm-lb")

    def place(self, recipe: Recipe, kube_version: str) -> Path:
        """Where this binary is, or would be."""
        return self.root / "controlplane" / cache_key(recipe, kube_version) / recipe.name

    def find(self, recipe: Recipe, kube_version: str) -> Path | None:
        """The finished binary, or None."""
        path = self.place(recipe, kube_version)
        return path if os.access(path, os.X_OK) else None

    @contextlib.contextmanager
    def only_builder(self, progress: Progress) -> Iterator[None]:
        """Wait until no other process builds; the lock ends with the process, however it ends."""
        folder = self.root / "controlplane"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.line(f"another build is running in {folder}: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
