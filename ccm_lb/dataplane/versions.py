"""Versions of Kubernetes, kernels and agents, compared as numbers and never as text."""

from __future__ import annotations

import dataclasses
import functools
import re

_VERSION = re.compile(
    r"v?(?P<major>\d+)\.(?P<minor>\d+)(?:\.(?P<patch>\d+))?"
    r"(?:-(?P<pre>(?:alpha|beta|rc|pre|snapshot|dev)[\w.]*))?(?P<rest>[-+.~_].*)?"
)


@functools.total_ordering
@dataclasses.dataclass(frozen=True)
class Version:
    """`1.18.0`, `v1.34.4+k3s1`, `5.15.0-1034-gke`: what stands behind the numbers is kept in `text` and not compared."""

    major: int
    minor: int
    patch: int = 0
    pre: str = ""
    text: str = dataclasses.field(default="", compare=False)

    def __lt__(self, other: Version) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[int, int, int, bool, str]:
        # A pre-release comes before the release it leads to.
        return (self.major, self.minor, self.patch, not self.pre, self.pre)

    def __str__(self) -> str:
        return self.text or f"{self.major}.{self.minor}.{self.patch}{'-' if self.pre else ''}{self.pre}"


def parse(text: str) -> Version | None:
    """The version that `text` begins with; None where it begins with none."""
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        return None
    return Version(
        int(found["major"]), int(found["minor"]), int(found["patch"] or 0), found["pre"] or "", text.strip().lstrip("v")
    )


def of_image(image: str) -> Version | None:
    """The version in an image's tag; None for a digest alone, `latest`, or a tag that is none."""
    name, _, _digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return parse(tag)
