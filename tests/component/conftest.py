"""What the component tests start from."""

import pytest

from tests.component.world import World


@pytest.fixture
def world() -> World:
    """A cluster with nodes and no Service, for tests that call `reconcile` themselves."""
    return World.reconciling()
