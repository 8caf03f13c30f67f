"""The Lease of each test."""

from __future__ import annotations

import pytest

from tests.component.kube.leaderelection.world import LeaseServer


@pytest.fixture
def server() -> LeaseServer:
    return LeaseServer()
