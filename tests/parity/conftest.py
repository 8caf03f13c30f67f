"""What the suite stands on: the binaries of both controllers and of the API server."""

from pathlib import Path

import pytest

from tests.controlplane import recipes
from tests.harness import fixtures


@pytest.fixture(scope="session")
def binaries() -> dict[str, Path]:
    return fixtures.built([*recipes.CONTROL_PLANE, *recipes.PEERS])
