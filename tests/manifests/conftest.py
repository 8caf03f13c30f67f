"""kubectl and Helm, and an API server that enforces Pod Security."""

import os
from pathlib import Path

import pytest

from tests.controlplane import build, recipes
from tests.harness.fixtures import control_plane, kube, kubectl

__all__ = ["control_plane", "kube", "kubectl"]


@pytest.fixture(scope="session")
def helm() -> Path:
    version = recipes.checked_version(os.environ.get("KUBE_VERSION") or recipes.default_kube_version())
    found = build.find_binaries(["helm"], version)
    if not found:
        pytest.fail("helm is not built: make controlplane", pytrace=False)
    return found["helm"]
