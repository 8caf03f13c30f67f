"""The image of this checkout as an archive, kept in `build/` for as long as what it is made of stays the same."""

import hashlib
from pathlib import Path
from typing import Final

from tests.image.builder import ROOT, Builder

# The name by which a kubelet finds what the manifests ask for.
NAME: Final = "docker.io/library/ccm-lb:0.1.0"
_SOURCES: Final = ("Dockerfile", "requirements.lock", "pyproject.toml", "README.md", "LICENSE")
_PACKAGES: Final = ("ccm_lb", "fakecloud")


def ensure(folder: Path) -> Path:
    """The archive; built first where it is missing, with `folder` for what that needs. It is for reading alone."""
    place = _place()
    if not place.exists():
        building = Builder(folder)
        try:
            building.build()
            keep(building)
        finally:
            building.close()
    return place


def keep(built: Builder) -> None:
    """Save the image that was built from this checkout; an older one goes."""
    place = _place()
    place.parent.mkdir(parents=True, exist_ok=True)
    for old in place.parent.glob("*.tar"):
        old.unlink()
    # It appears whole.
    built.saved(place.with_suffix(".new"), NAME).replace(place)


def _place() -> Path:
    made_of = [ROOT / name for name in _SOURCES]
    for package in _PACKAGES:
        made_of += sorted(path for path in (ROOT / package).rglob("*") if "__pycache__" not in path.parts)
    whole = hashlib.sha256()
    for path in made_of:
        if path.is_file():
            whole.update(f"{path.relative_to(ROOT)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return ROOT / "build" / "image" / f"{whole.hexdigest()[:16]}.tar"
